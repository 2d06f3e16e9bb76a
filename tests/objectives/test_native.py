"""The loss that a model returns, in whatever it returns, and the one with smoothed labels."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from torch import nn
from torch.nn import functional

from burnish.core.errors import SettingError, UserError
from burnish.objectives.native import NativeLoss, loss_in

LOSS, LOGITS = torch.tensor(2.5), torch.zeros(4, 3)
Named = namedtuple("Named", "logits loss")


@dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None


def batch_of(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Rows cut to the shortest, as one batch."""
    shortest = min(len(row["input_ids"]) for row in rows)
    return {
        name: torch.tensor([row[name][:shortest] if isinstance(row[name], list) else row[name] for row in rows])
        for name in rows[0]
    }


@pytest.mark.parametrize(
    "outputs",
    [
        LOSS,
        LOSS.reshape(1),
        (LOSS, LOGITS),
        [LOSS],
        {"logits": LOGITS, "loss": LOSS},
        Output(LOGITS, LOSS),
        Named(LOGITS, LOSS),
        SimpleNamespace(loss=LOSS),
        {"loss": torch.tensor([2.0, 3.0])},  # one a row
    ],
)
def test_where_the_loss_is(outputs: Any) -> None:
    found = loss_in(outputs)
    assert found.dim() == 0 and found.item() == 2.5


@pytest.mark.parametrize(
    ("outputs", "named"),
    [
        (None, "NoneType"),
        ({"logits": LOGITS}, "['logits']"),
        (Output(LOGITS), "['logits', 'loss']"),
        ((LOGITS, LOSS), "a tuple that begins with a tensor of shape (4, 3)"),
        (LOGITS, "a tensor of shape (4, 3)"),
        (torch.zeros(4), "a tensor of shape (4,)"),
        ((), "tuple"),
        ({"loss": "low"}, "['loss']"),
    ],
)
def test_no_loss_is_said_and_logits_are_taken_for_none(outputs: Any, named: str) -> None:
    with pytest.raises(UserError) as caught:
        loss_in(outputs, {"input_ids": LOGITS, "x": LOGITS})
    message = str(caught.value)
    assert named in message and "given ['input_ids', 'x']" in message and "compute_loss_func" in message


def test_a_model_and_its_outputs() -> None:
    model, batch = tiny.bert("SequenceClassification"), batch_of(tiny.class_rows(4))
    loss, outputs = NativeLoss()(model, batch)
    assert loss is outputs.loss and torch.equal(loss, model(**batch).loss)
    assert outputs.logits.shape == (4, 2)


def test_the_cache_is_switched_off_for_the_call_alone() -> None:
    model, batch = tiny.llama(), batch_of(tiny.language_rows(2))
    assert NativeLoss().forward(model, batch).past_key_values is not None
    assert NativeLoss(passes_use_cache=True).forward(model, batch).past_key_values is None
    assert NativeLoss(passes_use_cache=True).forward(model, {**batch, "use_cache": True}).past_key_values is not None
    assert model.config.use_cache is True


def test_inputs_that_are_no_keywords() -> None:
    with pytest.raises(UserError, match=r"returned a tuple.*compute_loss"):
        NativeLoss()(nn.Linear(1, 1), (LOGITS, LOSS))  # type: ignore[arg-type]


@pytest.mark.parametrize("shifts", [False, True])
def test_smoothing_against_the_definition(shifts: bool) -> None:
    """Szegedy et al.: the target holds 1 - s + s / C for its class and s / C for the others."""
    smoothing, classes = 0.2, 5
    logits = torch.randn(2, 4, classes, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[1, -100, 3, 0], [4, 2, -100, -100]])
    found = NativeLoss(shifts_labels=shifts, label_smoothing=smoothing).smoothed({"logits": logits}, labels)
    losses = []
    for row in range(2):
        for place in range(4):
            target = labels[row, place].item()
            if target == -100 or (shifts and place == 0):
                continue
            at = place - 1 if shifts else place
            share = torch.full((classes,), smoothing / classes)
            share[int(target)] += 1 - smoothing
            losses.append(-(share * functional.log_softmax(logits[row, at], -1)).sum())
    torch.testing.assert_close(found, torch.stack(losses).mean())


def test_smoothing_of_a_model() -> None:
    model, batch = tiny.bert("SequenceClassification"), batch_of(tiny.class_rows(4))
    loss, outputs = NativeLoss(label_smoothing=0.1)(model, batch)
    torch.testing.assert_close(loss, functional.cross_entropy(outputs.logits, batch["labels"], label_smoothing=0.1))
    causal, rows = tiny.llama(), batch_of(tiny.language_rows(3))
    almost_none, _ = NativeLoss(shifts_labels=True, label_smoothing=1e-9)(causal, rows)
    torch.testing.assert_close(almost_none, causal(**rows).loss)


def test_what_cannot_be_smoothed() -> None:
    smooth = NativeLoss(label_smoothing=0.1)
    for outputs, labels in (({"loss": LOSS}, torch.tensor([1])), ({"logits": LOGITS}, torch.rand(4, 3))):
        with pytest.raises(SettingError, match="label_smoothing_factor=0"):
            smooth.smoothed(outputs, labels)
    model = tiny.bert("SequenceClassification")
    batch = batch_of(tiny.text_rows(2))
    with pytest.raises(UserError, match="no loss"):
        smooth(model, batch)


def test_a_number_is_no_loss() -> None:
    with pytest.raises(UserError, match=r"returned the number 0.5 as its loss. It must be a tensor"):
        loss_in({"loss": 0.5})
