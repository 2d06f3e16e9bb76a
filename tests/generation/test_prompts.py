"""Prompts out of training rows: what stands before the first target; and what the row has in place of the text."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch

from burnish.core.errors import DataError
from burnish.generation.prompts import (
    Cut,
    are_texts,
    cut_rows,
    filled_up,
    inputs_to_read,
    prompt_ids,
    with_pads,
    with_prompt,
)

PAD = 99


def cuts(ids: list[list[int]], mask: Any = None, labels: Any = None, encodes: bool = False) -> list[Any]:
    inputs = {"input_ids": torch.tensor(ids)}
    for name, value in (("attention_mask", mask), ("labels", labels)):
        if value is not None:
            inputs[name] = torch.tensor(value)
    return [tuple(cut) for cut in cut_rows(inputs, encodes)]


def test_a_row_up_to_its_first_target() -> None:
    found = cuts([[1, 2, 3, 4], [5, 6, 7, 8]], labels=[[-100, -100, -100, 4], [-100, 6, 7, 8]])
    assert found == [([1, 2, 3], [4]), ([5], [6, 7, 8])]


def test_a_conversation_is_cut_at_its_first_answer() -> None:
    assert cuts([[1, 2, 3, 4, 5]], labels=[[-100, 2, 3, -100, 5]]) == [([1], [2, 3])]


def test_padding_on_either_side_of_the_row_is_taken_away() -> None:
    right = cuts([[1, 2, 3, 0], [5, 6, 0, 0]], [[1, 1, 1, 0], [1, 1, 0, 0]])
    left = cuts([[0, 1, 2, 3], [0, 0, 5, 6]], [[0, 1, 1, 1], [0, 0, 1, 1]])
    assert right == left == [([1, 2, 3], None), ([5, 6], None)]


def test_padding_and_targets_together() -> None:
    labels = [[-100, -100, -100, 3], [-100, 6, 7, -100]]
    found = cuts([[0, 1, 2, 3], [5, 6, 7, 0]], [[0, 1, 1, 1], [1, 1, 1, 0]], labels)
    assert found == [([1, 2], [3]), ([5], [6, 7])]


def test_rows_without_targets_are_all_prompt() -> None:
    assert cuts([[1, 2], [3, 4]], labels=[[-100] * 2] * 2) == [([1, 2], []), ([3, 4], [])]
    assert cuts([[1, 2], [3, 4]], labels=[0, 1]) == [([1, 2], None), ([3, 4], None)]  # classes are no targets of tokens


def test_a_row_without_a_prompt() -> None:
    assert cuts([[1, 2]], labels=[[1, 2]]) == [([], [1, 2])]


def test_a_source_and_its_target() -> None:
    found = cuts([[1, 2, 0]], [[1, 1, 0]], [[7, 8, -100, -100]], encodes=True)
    assert found == [([1, 2], [7, 8])]
    assert cuts([[1, 2, 0]], [[1, 1, 0]], encodes=True) == [([1, 2], None)]


def test_inputs_that_are_no_texts() -> None:
    ids = torch.zeros(1, 2)
    assert are_texts({"input_ids": ids, "labels": ids, "token_type_ids": ids})
    assert not are_texts({"input_ids": ids, "pixel_values": ids})
    assert not are_texts({"input_features": ids})


def test_rows_in_one_length() -> None:
    ids, mask = filled_up([[1, 2], [3]], PAD, "left")
    assert ids.tolist() == [[1, 2], [PAD, 3]] and mask.tolist() == [[1, 1], [0, 1]]
    ids, mask = filled_up([[1, 2], []], PAD, "right")
    assert ids.tolist() == [[1, 2], [PAD, PAD]] and mask.tolist() == [[1, 1], [0, 0]]
    assert ids.dtype == mask.dtype == torch.int64
    assert filled_up([], PAD, "right")[0].shape == (0, 0)


def test_prompts_of_a_column() -> None:
    tokenizer = tiny.tokenizer()
    assert prompt_ids("w7 w8", tokenizer, 0, "prompt") == [7, 8]
    assert prompt_ids([7, 8], None, 0, "prompt") == prompt_ids(torch.tensor([7, 8]), None, 0, "prompt") == [7, 8]
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt %}w9{% endif %}"
    )
    assert prompt_ids([{"role": "user", "content": "w7"}], tokenizer, 0, "prompt") == [7, 9]
    with pytest.raises(DataError, match=r"Row 3.*'prompt'.*0.5"):
        prompt_ids(0.5, tokenizer, 3, "prompt")
    with pytest.raises(DataError, match=r"Row 3.*processing_class"):
        prompt_ids("w7", None, 3, "prompt")


def test_a_row_with_another_prompt() -> None:
    assert with_prompt(Cut([], [1, 2, 3]), [1]) == ([1], [2, 3])
    assert with_prompt(Cut([], [1, 2, 3]), [4]) == ([4], [1, 2, 3])
    assert with_prompt(Cut([1], [1, 2]), [1]) == ([1], [1, 2])
    assert with_prompt(Cut([1, 2], None), [4]) == ([4], None)


def test_what_is_read_beside_texts() -> None:
    batch = {name: torch.zeros(1) for name in ("input_features", "attention_mask", "labels", "decoder_input_ids")}
    assert set(inputs_to_read(batch, True, PAD)) == {"input_features", "attention_mask"}
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    labels = torch.tensor([[-100, -100, 3], [-100, 5, 6]])
    found = inputs_to_read({"input_ids": ids, "labels": labels, "position_ids": ids, "pixel_values": ids}, False, PAD)
    assert found["input_ids"].tolist() == [[1, 2], [PAD, 4]] and found["attention_mask"].tolist() == [[1, 1], [0, 1]]
    assert set(found) == {"input_ids", "attention_mask", "pixel_values"}


def test_ids_that_a_tokenizer_can_decode() -> None:
    ids = torch.tensor([[5, -100], [-100, 6]])
    assert with_pads(ids, PAD).tolist() == [[5, PAD], [PAD, 6]]
    assert ids.tolist() == [[5, -100], [-100, 6]]
