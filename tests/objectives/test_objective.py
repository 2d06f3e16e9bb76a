"""Losses of micro-batches add up to the loss of the step, for every kind of loss a user may write."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from burnish.core.types import IGNORED_LABEL, MicroBatch
from burnish.data.counting import LabelCounter
from burnish.objectives.objective import LossOf, agree, expected_mean

CLASSES, WIDTH = 4, 6
TARGETS = (5, 1, 3, 2, 6)
"""Labels other than -100 of each row."""

Loss = Callable[..., torch.Tensor]


class Tagger(nn.Module):
    """Classes of tokens, from a table."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(20, CLASSES)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.table(ids)
        return logits


def batch(*rows: int) -> MicroBatch:
    ids = torch.tensor([[(row * 7 + place * 3) % 20 for place in range(WIDTH)] for row in rows])
    labels = torch.tensor([[(row + place) % CLASSES for place in range(WIDTH)] for row in rows])
    for label, row in zip(labels, rows, strict=True):
        label[: WIDTH - TARGETS[row]] = IGNORED_LABEL
    inputs = {"ids": ids, "labels": labels}
    return MicroBatch(inputs, rows, LabelCounter()(inputs), ids.numel(), ids.numel())


def token_sum(model: nn.Module, inputs: Any) -> torch.Tensor:
    return functional.cross_entropy(model(inputs["ids"]).flatten(0, 1), inputs["labels"].flatten(), reduction="sum")


def per_token(model: nn.Module, inputs: Any, number: Any = None) -> torch.Tensor:
    return token_sum(model, inputs) / inputs["labels"].ne(IGNORED_LABEL).sum()


def per_next_token(model: nn.Module, inputs: Any, number: Any = None) -> torch.Tensor:
    logits, labels = model(inputs["ids"])[:, :-1], inputs["labels"][:, 1:]
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def per_row(model: nn.Module, inputs: Any, number: Any = None) -> torch.Tensor:
    rows = [
        per_token(model, {"ids": ids[None], "labels": labels[None]})
        for ids, labels in zip(*inputs.values(), strict=True)
    ]
    return torch.stack(rows).mean()


def already_divided(model: nn.Module, inputs: Any, number: Any = None) -> torch.Tensor:
    return token_sum(model, inputs) / (inputs["labels"].ne(IGNORED_LABEL).sum() if number is None else number)


def takes_things_out(model: nn.Module, inputs: Any, number: Any = None) -> torch.Tensor:
    labels = inputs.pop("labels")
    return per_token(model, {"ids": inputs.pop("ids"), "labels": labels})


def contrastive(model: nn.Module, inputs: Any, number: Any = None) -> torch.Tensor:
    """Rows against the mean of all rows of the batch."""
    rows = model(inputs["ids"]).mean(1)
    return (rows - rows.mean(0)).square().sum()


def settled(loss: Loss, expected: str, gives_number: bool = False, model: nn.Module | None = None) -> LossOf:
    objective = LossOf(loss, expected, gives_number=gives_number)
    return objective.settled_on(model or Tagger(), batch(1), batch(4), batch(1, 4))


@pytest.mark.parametrize(
    ("loss", "mean_over", "gives_number", "divided"),
    [
        (per_token, "labels", False, False),
        (per_next_token, "next_labels", False, False),
        (per_row, "rows", False, False),
        (takes_things_out, "labels", False, False),
        (per_token, "labels", True, False),  # takes the number and makes no use of it
        (already_divided, "labels", True, True),
        (already_divided, "labels", False, False),  # may be told, but is not
        (per_row, "rows", True, False),
    ],
)
@pytest.mark.parametrize("expected", ["labels", "rows", "next_labels"])
def test_any_loss_is_found_out_and_any_split_is_the_whole(
    loss: Loss, mean_over: str, gives_number: bool, divided: bool, expected: str
) -> None:
    model = Tagger()
    objective = settled(loss, expected, gives_number, model)
    assert objective.rows_interact is False
    if not divided:
        assert objective.mean_over == mean_over
    assert objective.divided is divided
    whole = objective.mean_loss(model, batch(0, 1, 2, 3, 4))
    for split in ([(0,), (1,), (2,), (3,), (4,)], [(4, 0), (3, 1, 2)], [(1, 2, 3, 4), (0,)]):
        parts = [batch(*rows) for rows in split]
        number = sum(objective.weight(part) for part in parts)
        total = torch.stack([objective.step_loss(model, part, number) for part in parts]).sum()
        torch.testing.assert_close(total, whole)


def test_a_loss_whose_rows_interact_is_said(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("burnish").propagate = True
    objective = settled(contrastive, "labels")
    assert objective.rows_interact and objective.mean_over == "labels"
    assert "The loss of Tagger is no mean over rows or labels" in caplog.text


def test_a_division_is_seen_where_the_expectation_is_met(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("burnish").propagate = True
    caplog.set_level(logging.INFO, "burnish")
    assert settled(per_token, "labels") == LossOf(per_token, "labels")
    assert caplog.text == ""
    settled(per_token, "rows")
    assert "is a mean over labels" in caplog.text


def test_the_number_is_that_of_the_whole_step() -> None:
    told: list[Any] = []

    def loss(model: nn.Module, inputs: Any, number: torch.Tensor | None) -> torch.Tensor:
        told.append(number)
        return token_sum(model, inputs) / 17

    objective = LossOf(loss, "labels", divided=True, gives_number=True)
    objective.step_loss(Tagger(), batch(0, 1), 17)
    LossOf(loss, "labels").step_loss(Tagger(), batch(0, 1), 17)
    assert isinstance(told[0], torch.Tensor) and told[0].item() == 17 and told[1] is None


def test_the_inputs_stay_as_they_are() -> None:
    given = batch(0, 1)
    objective = LossOf(takes_things_out, "labels")
    assert torch.equal(objective.mean_loss(Tagger(), given), objective.mean_loss(Tagger(), given))
    assert set(given.inputs) == {"ids", "labels"}


def test_inputs_of_a_shape_of_their_own() -> None:
    given = batch(0, 1)
    pair = MicroBatch((given.inputs["ids"], given.inputs["labels"]), (0, 1), given.counts, 12, 12)  # type: ignore[arg-type]
    objective = LossOf(
        lambda model, inputs, number: per_token(model, dict(zip(("ids", "labels"), inputs, strict=True))), "labels"
    )
    torch.testing.assert_close(
        objective.mean_loss(Tagger(), pair), LossOf(per_token, "labels").mean_loss(Tagger(), given)
    )


def test_expectations_of_the_losses_of_transformers() -> None:
    assert [expected_mean(*facts) for facts in ((False, False), (True, False), (False, True), (True, True))] == [
        "labels",
        "next_labels",
        "rows",
        "rows",
    ]


def test_two_batches_of_the_same_examples() -> None:
    objective, model = LossOf(per_token, "labels"), Tagger()
    assert agree(objective, model, batch(0, 1, 2), batch(2, 0, 1))
    assert not agree(objective, model, batch(0, 1), batch(3, 4))
