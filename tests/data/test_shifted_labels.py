"""Labels that could only be predicted from padding carry no loss."""

from __future__ import annotations

import torch

from burnish.data.shifted_labels import with_predictable_labels


def batch(labels: list[list[int]], mask: list[list[int]]) -> dict[str, torch.Tensor]:
    return {"labels": torch.tensor(labels), "attention_mask": torch.tensor(mask)}


def test_the_first_token_after_padding_loses_its_label() -> None:
    given = batch([[-100, -100, 5, 6], [1, 2, 3, 4]], [[0, 0, 1, 1], [1, 1, 1, 1]])
    found = with_predictable_labels(given)
    assert found["labels"].tolist() == [[-100, -100, -100, 6], [1, 2, 3, 4]]
    assert given["labels"][0, 2] == 5, "the batch that was given stays as it is"


def test_what_does_not_follow_padding_stays() -> None:
    on_the_right = batch([[5, 6, -100], [1, 2, 3]], [[1, 1, 0], [1, 1, 1]])
    asked_for = batch([[5, 6, 7]], [[1, 0, 0]])  # labels on padding itself are the data's own wish
    for given in (on_the_right, asked_for):
        assert with_predictable_labels(given) is given


def test_other_labels_are_not_looked_at() -> None:
    classes = {"labels": torch.tensor([1, 0]), "attention_mask": torch.tensor([[0, 1], [1, 1]])}
    numbers = {"labels": torch.ones(1, 2), "attention_mask": torch.tensor([[0, 1]])}
    without_mask = {"labels": torch.tensor([[1, 2]])}
    for given in (classes, numbers, without_mask):
        assert with_predictable_labels(given) is given
