"""Prompts out of training rows: what stands before the first target, padded on the left."""

from __future__ import annotations

from typing import Any

import torch

from burnish.generation.prompts import encoder_inputs, prompts_of, with_pads

PAD = 99


def prompts(ids: list[list[int]], mask: Any = None, labels: Any = None) -> tuple[list[list[int]], list[list[int]]]:
    inputs = {"input_ids": torch.tensor(ids)}
    for name, value in (("attention_mask", mask), ("labels", labels)):
        if value is not None:
            inputs[name] = torch.tensor(value)
    found = prompts_of(inputs, PAD)
    assert set(found) == {"input_ids", "attention_mask"} and found["attention_mask"].dtype == torch.int64
    return found["input_ids"].tolist(), found["attention_mask"].tolist()


def test_a_row_up_to_its_first_target() -> None:
    ids, mask = prompts(
        [[1, 2, 3, 4], [5, 6, 7, 8]],
        labels=[[-100, -100, -100, 4], [-100, 6, -100, 8]],  # what comes after a target is no prompt
    )
    assert ids == [[1, 2, 3], [PAD, PAD, 5]] and mask == [[1, 1, 1], [0, 0, 1]]


def test_padding_on_either_side_of_the_row_is_taken_away() -> None:
    right = prompts([[1, 2, 3, 0], [5, 6, 0, 0]], [[1, 1, 1, 0], [1, 1, 0, 0]])
    left = prompts([[0, 1, 2, 3], [0, 0, 5, 6]], [[0, 1, 1, 1], [0, 0, 1, 1]])
    assert right == left == ([[1, 2, 3], [PAD, 5, 6]], [[1, 1, 1], [0, 1, 1]])


def test_padding_and_targets_together() -> None:
    found = prompts(
        [[0, 1, 2, 3], [5, 6, 7, 0]], [[0, 1, 1, 1], [1, 1, 1, 0]], [[-100, -100, -100, 3], [-100, 6, 7, -100]]
    )
    assert found == ([[1, 2], [PAD, 5]], [[1, 1], [0, 1]])


def test_rows_without_targets_are_all_prompt() -> None:
    assert prompts([[1, 2], [3, 4]])[0] == [[1, 2], [3, 4]]
    assert prompts([[1, 2], [3, 4]], labels=[[-100] * 2] * 2)[0] == [[1, 2], [3, 4]]
    assert prompts([[1, 2], [3, 4]], labels=[0, 1])[0] == [[1, 2], [3, 4]]  # classes of rows are no targets of tokens


def test_a_row_without_a_prompt_has_one_pad() -> None:
    assert prompts([[1, 2]], labels=[[1, 2]]) == ([[PAD]], [[0]])


def test_what_an_encoder_reads() -> None:
    batch = {name: torch.zeros(1) for name in ("input_ids", "attention_mask", "labels", "decoder_input_ids", "pixels")}
    assert set(encoder_inputs(batch)) == {"input_ids", "attention_mask", "pixels"}


def test_ids_that_a_tokenizer_can_decode() -> None:
    ids = torch.tensor([[5, -100], [-100, 6]])
    assert with_pads(ids, PAD).tolist() == [[5, PAD], [PAD, 6]]
    assert ids.tolist() == [[5, -100], [-100, 6]]
