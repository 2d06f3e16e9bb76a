"""Logged values become JSON that every reader takes, and lose nothing on the way."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from burnish.tracking.values import Announced, plain, record, split_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (torch.tensor(0.25, dtype=torch.bfloat16), 0.25),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (torch.tensor([1.0, 2.0]), [1.0, 2.0]),
        ({1: np.float64(0.5), "b": (1, 2)}, {"1": 0.5, "b": [1, 2]}),
        (np.float64(0.5), 0.5),
        (None, None),
        (True, True),
        ("text", "text"),
        (torch.float32, "torch.float32"),
    ],
)
def test_values_become_plain(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)
    json.dumps(found)


def test_numbers_that_json_lacks_are_null_and_named() -> None:
    found = record({"loss": math.nan, "per_class": np.array([0.5, -np.inf]), "deep": {"f1": math.inf}, "step": 3})
    assert json.loads(json.dumps(found, allow_nan=False)) == {
        "loss": None,
        "per_class": [0.5, None],
        "deep": {"f1": None},
        "step": 3,
        "nonfinite": {"loss": "nan", "per_class[1]": "-inf", "deep.f1": "inf"},
    }
    assert record({"loss": 1.0}) == {"loss": 1.0}


@pytest.mark.parametrize(
    ("metrics", "split"),
    [
        ({"loss": 0.5, "learning_rate": 1e-4}, None),
        ({"loss": 0.5, "reward_runtime": 1.0}, None),
        ({"reward": 0.5}, None),
        ({"eval_loss": 0.5}, "eval"),
        ({"eval_loss": 0.5, "eval_runtime": 2.0}, "eval"),
        ({"eval_german_loss": 0.5, "eval_german_runtime": 2.0}, "eval_german"),
        ({"test_runtime": 2.0}, "test"),
        ({"train_runtime": 2.0, "train_loss": 0.5}, "train"),
    ],
)
def test_metrics_say_which_pass_they_are_of(metrics: dict[str, float], split: str | None) -> None:
    assert split_of(metrics) == split


def test_an_evaluation_that_was_just_logged_is_no_news() -> None:
    announced, metrics = Announced(), {"eval_loss": 0.5}
    assert announced.is_news(3, metrics)
    announced.logged(3, {**metrics, "epoch": 1.0})
    assert not announced.is_news(3, metrics)
    assert announced.is_news(3, metrics), "a second evaluation that was not logged"
    announced.logged(3, {"loss": 0.5})
    assert announced.is_news(3, metrics)
