"""The best evaluation, with NaN among the scores."""

from __future__ import annotations

from math import nan

import pytest

from burnish.core.errors import SettingError
from burnish.evaluation.best import is_better, metric_value


@pytest.mark.parametrize(
    ("value", "best", "greater", "expected"),
    [
        (0.6, 0.5, True, True),
        (0.5, 0.6, True, False),
        (0.5, 0.6, False, True),
        (0.6, 0.5, False, False),
        (0.5, 0.5, True, False),
        (0.5, 0.5, False, False),
        (0.5, None, False, True),
        (0.5, nan, True, True),
        (nan, 0.5, True, False),
        (nan, 0.5, False, False),
        (nan, None, True, False),
        (nan, nan, True, False),
        (float("-inf"), None, True, True),
    ],
)
def test_is_better(value: float, best: float | None, greater: bool, expected: bool) -> None:
    assert is_better(value, best, greater) is expected


METRICS = {"eval_accuracy": 0.9, "eval_loss": 1, "eval_by_class": [1, 2], "eval_a_f1": 0.1, "eval_b_f1": 0.2}


@pytest.mark.parametrize(("name", "expected"), [("accuracy", 0.9), ("eval_loss", 1.0), ("a_f1", 0.1)])
def test_metric_value(name: str, expected: float) -> None:
    assert metric_value(METRICS, name) == expected


def test_another_prefix() -> None:
    assert metric_value({"test_loss": 2}, "loss", prefix="test") == 2.0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("acuracy", "'acuracy' is not among.*eval_a_f1, eval_accuracy.*Did you mean 'eval_accuracy'"),
        ("f1", "'f1' does not say of which dataset.*'eval_a_f1' or 'eval_b_f1'"),
        ("by_class", r"'by_class' must be a number, but eval_by_class is \[1, 2\]"),
    ],
)
def test_what_cannot_be_is_said(name: str, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        metric_value(METRICS, name)
