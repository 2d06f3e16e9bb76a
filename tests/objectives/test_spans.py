"""The loss of answers: that of each row alone, however far the batch is padded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from torch.nn import functional

from burnish.data.counting import LabelCounter
from burnish.objectives.native import NativeLoss
from burnish.objectives.spans import span_loss

LENGTHS, ANSWERS = (5, 8, 6), ((1, 2), (3, 7), (0, 5))


def batch(width: int, side: str = "right") -> dict[str, torch.Tensor]:
    """Three rows with their answers, padded to `width`."""
    ids, mask = torch.zeros(3, width, dtype=torch.long), torch.zeros(3, width, dtype=torch.long)
    shift = []
    for i, length in enumerate(LENGTHS):
        start = width - length if side == "left" else 0
        ids[i, start : start + length] = torch.tensor(tiny.words(length, i))
        mask[i, start : start + length] = 1
        shift.append(start)
    answers = torch.tensor(ANSWERS) + torch.tensor(shift)[:, None]
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "start_positions": answers[:, 0],
        "end_positions": answers[:, 1],
    }


def outputs(width: int, side: str = "right") -> Any:
    """Logits that belong to the tokens, and large ones on padding."""
    found = {}
    for name in ("start_logits", "end_logits"):
        logits = torch.full((3, width), 9.0)
        for i, length in enumerate(LENGTHS):
            start = width - length if side == "left" else 0
            draw = torch.Generator().manual_seed(i + len(name))
            logits[i, start : start + length] = torch.randn(length, generator=draw)
        found[name] = logits
    return SimpleNamespace(**found)


def by_hand() -> torch.Tensor:
    logits, losses = outputs(8), []
    for i, length in enumerate(LENGTHS):
        for name, answer in zip(("start_logits", "end_logits"), ANSWERS[i], strict=True):
            losses.append(functional.cross_entropy(getattr(logits, name)[i, :length], torch.tensor(answer)))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("width", [8, 11, 30])
def test_padding_is_no_candidate(width: int, side: str) -> None:
    found = span_loss(outputs(width, side), batch(width, side))
    assert found is not None
    torch.testing.assert_close(found, by_hand())


def test_a_row_has_the_loss_it_has_alone() -> None:
    model = tiny.bert("QuestionAnswering")
    whole = batch(12)
    weights, losses = [], []
    for i, length in enumerate(LENGTHS):
        row = {name: value[i : i + 1] for name, value in whole.items()}
        row |= {name: row[name][:, :length] for name in ("input_ids", "attention_mask")}
        losses.append(NativeLoss()(model, row)[0])
        weights.append(LabelCounter(("start_positions", "end_positions"))(row).labels)
        torch.testing.assert_close(losses[-1], model(**row).loss)  # without padding the model's own loss is right
    assert weights == [2, 2, 2]
    torch.testing.assert_close(NativeLoss()(model, whole)[0], torch.stack(losses).mean())


def test_answers_beyond_the_row_carry_no_loss() -> None:
    inside, given = batch(8), batch(8)
    given["start_positions"] = torch.tensor([1, 3, 6])  # row 2 has 6 tokens: padding
    given["end_positions"] = torch.tensor([2, 99, -100])
    found = span_loss(outputs(8), given)
    logits = outputs(8)
    kept = [("start_logits", 0), ("start_logits", 1), ("end_logits", 0)]
    expected = [
        functional.cross_entropy(getattr(logits, name)[i, : LENGTHS[i]], inside[name.replace("logits", "positions")][i])
        for name, i in kept
    ]
    assert found is not None
    torch.testing.assert_close(found, torch.stack(expected).mean())
    assert LabelCounter(("start_positions",))(given).labels == 3


def test_answers_in_a_column_and_rows_without_a_mask() -> None:
    given = batch(8)
    columns = {name: given[name][:, None] for name in ("start_positions", "end_positions")}
    found, expected = span_loss(outputs(8), {**given, **columns}), span_loss(outputs(8), given)
    assert found is not None and expected is not None and torch.equal(found, expected)
    del given["attention_mask"]
    without = span_loss(outputs(8), given)
    assert without is not None and without > expected  # the 9.0 on padding are candidates now


def test_what_is_no_answer_is_left_to_the_model() -> None:
    given = batch(8)
    assert span_loss(SimpleNamespace(logits=torch.zeros(3, 2)), given) is None
    assert span_loss((torch.zeros(3, 8), torch.zeros(3, 8)), given) is None
    assert span_loss(outputs(8), {"input_ids": given["input_ids"]}) is None
