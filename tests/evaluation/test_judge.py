"""`compute_metrics` in all its forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from burnish.core.errors import SettingError
from burnish.evaluation.judge import Judge, checked
from burnish.evaluation.prediction import EvalPrediction
from burnish.evaluation.reading import Reading

LOGITS = torch.tensor([[0.0, 1.0], [2.0, 1.0], [0.0, 3.0]])
LABELS = torch.tensor([1, 1, 1])
ALL = EvalPrediction(LOGITS.numpy(), LABELS.numpy())


def judge(given: Any, **settings: Any) -> Judge:
    return Judge(given, Reading(), **settings)


def own(prediction: EvalPrediction) -> dict[str, Any]:
    predictions, labels = prediction
    return {"right": int((predictions.argmax(-1) == labels).sum())}


@pytest.mark.parametrize("given", ["accuracy", ["accuracy"], ("accuracy", own), [own, "accuracy"]])
def test_names_and_functions_together(given: Any) -> None:
    metrics = judge(given)
    for row in range(3):
        metrics.update(EvalPrediction(LOGITS[row : row + 1], LABELS[row : row + 1]))
    found = metrics.compute(ALL)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert metrics.needs_everything is (given[0] is own or given[-1] is own)
    assert found.get("right", 2) == 2


def test_nothing_asked_for() -> None:
    assert judge(None).compute(ALL) == {} and not judge(None).needs_everything


def test_functions_called_with_each_batch() -> None:
    """As transformers does: every batch is given once, and the last says that the result is due."""
    seen: list[tuple[int, bool]] = []

    def counting(prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        assert isinstance(prediction.predictions, torch.Tensor)
        seen.append((len(prediction.label_ids), compute_result))
        return {"rows": sum(rows for rows, _ in seen)} if compute_result else {}

    metrics = judge(counting, by_batch=True)
    assert not metrics.needs_everything
    for rows in (2, 1, 3):
        metrics.update(EvalPrediction(LOGITS[:rows], LABELS[:rows]))
    assert metrics.compute() == {"rows": 6}
    assert seen == [(2, False), (1, False), (3, True)]


def test_arrays_become_lists() -> None:
    assert judge(lambda prediction: {"by_class": np.array([0.5, 1.0])}).compute(ALL) == {"by_class": [0.5, 1.0]}


def test_errors_name_the_metric_and_the_shapes() -> None:
    def broken(prediction: EvalPrediction) -> dict[str, float]:
        raise KeyError("logits")

    with pytest.raises(
        SettingError, match=r"broken raised KeyError: 'logits'.*float32 \(3, 2\) and labels int64 \(3,\)"
    ):
        judge(broken).compute(ALL)
    with pytest.raises(SettingError, match=r"'mse' cannot be computed.*\(3, 2\)"):
        judge("mse").update(EvalPrediction(LOGITS, LABELS))


def test_an_interrupt_goes_through() -> None:
    def interrupted(prediction: EvalPrediction) -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(interrupted).compute(ALL)


def test_two_metrics_of_one_name() -> None:
    with pytest.raises(SettingError, match="two metrics are called 'right'"):
        judge([own, lambda prediction: {"right": 1}]).compute(ALL)


@pytest.mark.parametrize(("given", "said"), [("akkuracy", "Known:"), (3, "not int"), (["accuracy", None], "NoneType")])
def test_what_cannot_be_a_metric(given: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        checked(given)
