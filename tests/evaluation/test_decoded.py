"""Decoding ids as trainers have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tiny
import torch

from burnish.core.errors import SettingError
from burnish.evaluation.decoded import decoded

IDS = [[2, 5, 6, -100], [7, -100, -100, -100]]


@pytest.mark.parametrize("ids", [IDS, np.array(IDS), torch.tensor(IDS), (torch.tensor(IDS), torch.ones(2))])
def test_ids_without_their_padding(ids: Any) -> None:
    assert decoded(ids, tiny.tokenizer()) == ["w5 w6", "w7"]


def test_rows_of_unequal_length_and_empty_ones() -> None:
    assert decoded([[5], [6, 7], [], [-100]], tiny.tokenizer()) == ["w5", "w6 w7", "", ""]


def test_settings_go_to_the_decoder() -> None:
    assert decoded(IDS, tiny.tokenizer(), skip_special_tokens=False) == ["[CLS] w5 w6", "w7"]


@pytest.mark.parametrize(
    ("ids", "processing_class", "said"),
    [(torch.ones(2, 3, 4), tiny.tokenizer(), "argmax"), (IDS, None, "processing_class is NoneType")],
)
def test_what_cannot_be_decoded(ids: Any, processing_class: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        decoded(ids, processing_class)
