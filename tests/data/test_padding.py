"""Columns become the tensors that torch makes of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from burnish.core.errors import DataError
from burnish.data.padding import as_tensor, padded


@pytest.mark.parametrize(
    "values",
    [[1, 2], [[1, 2], [3, 4]], [1, 2.5], [[1, 0.5], [2, 3]], [True, False], [[1, True], [0, False]], [1.0, 2]],
)
def test_types_are_those_of_torch(values: list[Any]) -> None:
    expected = torch.tensor(values)
    torch.testing.assert_close(as_tensor("numbers", values), expected, atol=0, rtol=0)


def test_the_value_that_is_no_number_or_too_large_is_named_by_its_row() -> None:
    for wrong in (2**63, 2**70, None):
        with pytest.raises(DataError, match="row 1 of the batch"):
            as_tensor("numbers", [[1, 2], [3, wrong]])


def test_sequences_of_one_length_are_filled_up_to_a_longer_one() -> None:
    even = torch.tensor([[1, 2], [3, 4]])
    assert padded(even, 0, "right") is even
    assert padded(even, 9, "right", 3).tolist() == [[1, 2, 9], [3, 4, 9]]
    assert padded(even, 9, "left", 3).tolist() == [[9, 1, 2], [9, 3, 4]]
