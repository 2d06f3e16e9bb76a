"""How long an example is, in every type that rows come in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BatchEncoding

from burnish.data.lengths import brought_length, real_length

PADDED = {"input_ids": [5, 6, 7, 0, 0], "attention_mask": [1, 1, 1, 0, 0]}


def as_kind(kind: Any, row: dict[str, Any]) -> dict[str, Any]:
    return {name: kind(value) for name, value in row.items()}


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_padding_counts_in_what_was_brought_only(kind: Any) -> None:
    row = as_kind(kind, PADDED)
    assert (real_length(row), brought_length(row)) == (3, 5)
    assert real_length({"input_ids": row["input_ids"]}) == 5


@pytest.mark.parametrize("row", [BatchEncoding(PADDED), SimpleNamespace(**PADDED)])
def test_rows_that_are_no_dicts(row: Any) -> None:
    assert (real_length(row), brought_length(row)) == (3, 5)


def test_padding_on_the_left_and_holes_in_the_mask() -> None:
    assert real_length({"input_ids": [0, 0, 5, 6], "attention_mask": [0, 0, 1, 1]}) == 2
    assert real_length({"input_ids": [5, 6, 7], "attention_mask": [1, 0, 1]}) == 2


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_several_sequences_in_one_example(kind: Any) -> None:
    """Multiple choice: each is padded to the longest of them."""
    row = as_kind(kind, {"input_ids": [[5, 6, 0], [5, 6, 7]], "attention_mask": [[1, 1, 0], [1, 1, 1]]})
    assert (real_length(row), brought_length(row)) == (6, 6)
    assert real_length({"input_ids": [[5, 6], [5, 6, 7], [5]]}) == 9
    assert real_length({"input_ids": [np.array([5, 6]), np.array([5, 6, 7])]}) == 6


@pytest.mark.parametrize("labels", [[5, 6, -100], torch.tensor([5, 6, -100]), np.array([5, 6, -100])])
def test_an_encoder_decoder_reads_its_labels_too(labels: Any) -> None:
    row = {**PADDED, "labels": labels}
    assert (real_length(row), real_length(row, is_encoder_decoder=True)) == (3, 6)


@pytest.mark.parametrize("label", [1, torch.tensor(1), np.array(1), np.int64(1), None])
def test_an_encoder_decoder_that_classifies(label: Any) -> None:
    assert real_length({**PADDED, "labels": label}, is_encoder_decoder=True) == 3


@pytest.mark.parametrize("row", [{"pixel_values": np.zeros((3, 4, 4))}, {}, "text", (1, 2)])
def test_rows_without_tokens(row: Any) -> None:
    assert (real_length(row), brought_length(row)) == (None, 1)


def test_an_empty_row() -> None:
    for empty in ([], np.zeros(0, dtype=int), torch.zeros(0, dtype=torch.long)):
        assert (real_length({"input_ids": empty}), brought_length({"input_ids": empty})) == (0, 0)
