"""Counts of a batch agree with what the losses of models are means over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import BatchEncoding

from burnish.core.types import Counts
from burnish.data.counting import LabelCounter, num_positions, num_rows, num_tokens

IDS = torch.ones(2, 4, dtype=torch.long)
TAGS = torch.tensor([[1, -100, 2, 3], [-100, -100, 0, -100]])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (torch.tensor([0, 1]), Counts(2, 2, 2)),
        (torch.tensor([0, -100]), Counts(2, 1, 1)),
        (torch.tensor([[0], [-100]]), Counts(2, 1, 0)),
        (torch.tensor([0.5, 1.5]), Counts(2, 2, 2)),
        (torch.rand(2, 5), Counts(2, 2, 2)),
        (TAGS, Counts(2, 4, 3)),
        (TAGS.int(), Counts(2, 4, 3)),
        (torch.full((2, 4), -100), Counts(2, 0, 0)),
        (torch.tensor(3), Counts(2, 2, 2)),
        (None, Counts(2, 2, 2)),
        (["text", "text"], Counts(2, 2, 2)),
    ],
)
def test_rows_labels_and_next_labels(labels: Any, expected: Counts) -> None:
    assert LabelCounter()({"input_ids": IDS, "labels": labels}) == expected


def test_labels_that_are_shifted_already() -> None:
    counted = LabelCounter()({"input_ids": IDS, "labels": IDS, "shift_labels": TAGS})
    assert counted.next_labels == counted.labels == 4


def test_labels_under_another_name() -> None:
    counter = LabelCounter(("lm_labels", "labels"))
    assert counter({"input_ids": IDS, "lm_labels": TAGS}) == Counts(2, 4, 3)
    assert counter({"input_ids": IDS, "labels": torch.tensor([1, 1])}) == Counts(2, 2, 2)


SPANS = LabelCounter(("start_positions", "end_positions"))


@pytest.mark.parametrize(
    ("start", "end", "targets"),
    [
        ([0, 2], [1, 2], 4),
        ([0, 3], [1, 3], 2),  # the last token of row 1 is padding
        ([0, 9], [-1, 9], 1),  # beyond the row, before it
        ([[0], [2]], [[1], [2]], 4),
    ],
)
def test_answers_within_their_rows(start: list[Any], end: list[Any], targets: int) -> None:
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    batch = {"input_ids": IDS, "attention_mask": mask}
    batch |= {"start_positions": torch.tensor(start), "end_positions": torch.tensor(end)}
    assert SPANS(batch) == Counts(2, targets, targets)


def test_answers_without_a_mask_and_rows_without_answers() -> None:
    both = {"start_positions": torch.tensor([0, 3]), "end_positions": torch.tensor([3, 4])}
    assert SPANS({"input_ids": IDS, **both}).labels == 3
    assert SPANS({"input_ids": IDS}) == Counts(2, 2, 2)


def test_the_size_of_a_batch() -> None:
    assert num_rows({"labels": torch.zeros(3), "input_ids": torch.zeros(3, 5)}) == 3
    assert num_rows(BatchEncoding({"input_ids": torch.zeros(3, 5)})) == 3
    assert num_rows((torch.zeros(2, 3), torch.zeros(2))) == num_rows([["text"], torch.zeros(2)]) == 2
    assert num_rows({"weight": torch.tensor(1.0), "nested": {"x": torch.zeros(4)}}) == 4
    assert num_rows({"text": ["a", "b"]}) == num_rows({}) == num_rows(None) == num_rows(torch.tensor(1)) == 0


def test_tokens_and_positions() -> None:
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]])
    assert (num_tokens({"input_ids": IDS, "attention_mask": mask}), num_positions({"input_ids": IDS})) == (5, 8)
    assert num_tokens({"input_ids": IDS}) == 8
    assert num_tokens({"input_ids": IDS, "attention_mask": torch.zeros(2, 1, 4, 4)}) == 8  # a mask of its own kind
    assert num_tokens({"pixel_values": torch.zeros(2, 3, 4, 4)}) == 2
