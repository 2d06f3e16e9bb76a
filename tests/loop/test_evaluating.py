"""The evaluation loop: a mean over targets, each row once, outputs in order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from looping import NO_TARGET, Recorder, batch, counts_of, linear, mean_square

from burnish.loop.evaluating import EvaluationLoop, LossMean


class Kept:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, outputs: Any, rows: Any = None) -> None:
        self.values.append(outputs)


def evaluated(sizes: list[list[int]], without: tuple[int, ...] = (), **options: Any) -> tuple[Any, int, EvaluationLoop]:
    model = linear().eval()

    def predict(inputs: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            return mean_square(model, inputs), model(inputs["x"]), inputs["y"]

    run = EvaluationLoop(predict, counts_of, "labels", Recorder(), **options)
    mean, rows = run.run(batch(*rows, without=without).inputs for rows in sizes)
    return mean.value, rows, run


@pytest.mark.parametrize("without", [(), (1, 2, 3), (4,), (0, 1, 2, 5)])
@pytest.mark.parametrize("sizes", [[[0, 1, 2, 3], [4]], [[0], [1], [2], [3], [4]], [[0, 1], [2, 3, 4]]])
def test_the_loss_is_the_mean_over_all_targets(sizes: list[list[int]], without: tuple[int, ...]) -> None:
    loss, rows, run = evaluated(sizes, without)
    expected = mean_square(linear(), batch(0, 1, 2, 3, 4, without=without).inputs)
    assert (loss, rows) == (pytest.approx(expected.item()), 5)
    assert run.events.fired == ["on_prediction_step"] * len(sizes)  # type: ignore[attr-defined]


def test_no_target_at_all_has_no_loss() -> None:
    assert evaluated([[0, 1], [2]], without=(0, 1, 2))[:2] == (None, 3)
    assert evaluated([])[:2] == (None, 0)
    assert LossMean().value is None


def test_outputs_are_gathered_in_order() -> None:
    gather = {name: Kept() for name in ("predictions", "labels", "inputs", "losses")}
    evaluated([[3, 1], [2]], gather=gather, main_input="y")
    assert torch.cat(gather["labels"].values).tolist() == [3.0, 1.0, 2.0]
    assert [tuple(part.shape) for part in gather["predictions"].values] == [(2, 1), (1, 1)]
    assert [len(part) for part in gather["losses"].values] == [2, 1]
    assert [part.tolist() for part in gather["inputs"].values] == [[3.0, 1.0], [2.0]]


def test_outputs_are_changed_before_they_are_gathered() -> None:
    gather = {"predictions": Kept()}
    evaluated([[0, 1], [2]], gather=gather, preprocess=lambda logits, labels: logits.sum(-1) + labels * 0)
    assert [tuple(part.shape) for part in gather["predictions"].values] == [(2,), (1,)]


def test_what_a_model_does_not_give_is_left_out() -> None:
    gather = {name: Kept() for name in ("predictions", "losses")}
    run = EvaluationLoop(
        lambda inputs: (None, None, None), counts_of, "labels", Recorder(), gather, preprocess=lambda *_: 1 / 0
    )
    mean, rows = run.run([batch(0, 1).inputs])
    assert (mean.value, rows) == (None, 2)
    assert gather["predictions"].values == [None] and gather["losses"].values == []


def test_a_loss_for_each_row_counts_as_their_mean() -> None:
    run = EvaluationLoop(lambda inputs: (inputs["y"], None, None), counts_of, "rows", Recorder())
    mean, _ = run.run([batch(0, 1, 2).inputs, batch(3).inputs])
    assert mean.value == pytest.approx((0 + 1 + 2 + 3) / 4)
    assert NO_TARGET < 0
