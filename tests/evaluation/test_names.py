"""Metrics are named with their prefix, and are plain numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from burnish.core.errors import SettingError
from burnish.evaluation.names import plain_numbers, prefixed


def test_prefix() -> None:
    metrics = {"accuracy": 1, "eval_loss": 2, "evaluation": 3}
    assert prefixed(metrics, "eval") == {"eval_accuracy": 1, "eval_loss": 2, "eval_evaluation": 3}


def test_plain_numbers() -> None:
    metrics = {
        "numpy": np.float32(0.5),
        "torch": torch.tensor(2),
        "one": torch.tensor([0.25]),
        "by_class": np.array([1, 2]),
        "nested": {"pair": (np.int64(3), 4.0)},
        "text": "fine",
    }
    found = plain_numbers(metrics)
    assert found == {
        "numpy": 0.5,
        "torch": 2,
        "one": 0.25,
        "by_class": [1, 2],
        "nested": {"pair": [3, 4.0]},
        "text": "fine",
    }
    json.dumps(found)


@pytest.mark.parametrize("returned", [None, 0.5])
def test_no_dict_is_refused(returned: object) -> None:
    with pytest.raises(SettingError, match=f"compute_metrics must return a dict.*{type(returned).__name__}"):
        plain_numbers(returned)  # type: ignore[arg-type]
