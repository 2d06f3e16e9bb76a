"""Every schedule has transformers' values at every step; options are checked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers.trainer_utils import SchedulerType

from burnish.core.errors import SettingError
from burnish.optim.schedulers import METRIC_DRIVEN
from burnish.optim.schedules import SCHEDULES, multiplier

RATE = 0.5
CASES: list[tuple[str, dict[str, Any]]] = [
    ("linear", {}),
    ("cosine", {}),
    ("cosine", {"num_cycles": 1.75}),
    ("cosine_with_restarts", {}),
    ("cosine_with_restarts", {"num_cycles": 3}),
    ("polynomial", {}),
    ("polynomial", {"lr_end": 0.1, "power": 2.0}),
    ("constant", {}),
    ("constant_with_warmup", {}),
    ("inverse_sqrt", {}),
    ("inverse_sqrt", {"timescale": 5}),
    ("cosine_with_min_lr", {"min_lr": 0.05}),
    ("cosine_with_min_lr", {"min_lr_rate": 0.2, "num_cycles": 1.5}),
    ("cosine_warmup_with_min_lr", {"min_lr": 0.05}),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.2, "warmup_lr_rate": 0.3}),
    ("warmup_stable_decay", {"num_decay_steps": 8}),
    ("warmup_stable_decay", {"num_decay_steps": 6, "min_lr_ratio": 0.1, "warmup_type": "cosine"}),
    ("warmup_stable_decay", {"num_decay_steps": 6, "decay_type": "1-sqrt", "warmup_type": "1-sqrt"}),
    ("warmup_stable_decay", {"num_decay_steps": 6, "decay_type": "linear", "num_stable_steps": 3}),
]


def some_optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=RATE)


def reference_rates(name: str, warmup: int, total: int, steps: int, options: dict[str, Any]) -> list[float]:
    optimizer = some_optimizer()
    scheduler = transformers.get_scheduler(name, optimizer, warmup, total, options)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def test_every_name_of_transformers_is_known() -> None:
    assert {kind.value for kind in SchedulerType} == {*SCHEDULES, *METRIC_DRIVEN}


@pytest.mark.filterwarnings("ignore:Both num_training_steps and num_stable_steps")
@pytest.mark.parametrize(("warmup", "total"), [(0, 30), (1, 30), (7, 30), (20, 30), (3, 1000)])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_values_are_those_of_transformers(name: str, options: dict[str, Any], warmup: int, total: int) -> None:
    factor = multiplier(name, warmup_steps=warmup, total_steps=total, learning_rate=RATE, **options)
    expected = reference_rates(name, warmup, total, steps=45, options=options)
    assert [RATE * factor(step) for step in range(45)] == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "warmup_stable_decay"])
def test_a_run_that_is_all_warmup(name: str) -> None:
    options = {"min_lr_rate": 0.1} if "min_lr" in name else {}
    factor = multiplier(name, warmup_steps=4, total_steps=4, learning_rate=RATE, **options)
    assert all(0 <= factor(step) <= 1 for step in range(6))


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("cosin", {}, "'cosin' is unknown.*Did you mean 'cosine'"),
        ("linear", {"num_cycles": 2}, "'num_cycles'.*'linear' schedule does not take.*none"),
        ("cosine", {"num_cycle": 2}, "Did you mean 'num_cycles'"),
        ("cosine", {"num_cycles": "many"}, "'num_cycles'.*is a number, not 'many'"),
        ("cosine_with_min_lr", {}, "min_lr.*min_lr_rate.*not none"),
        ("cosine_with_min_lr", {"min_lr": 0.1, "min_lr_rate": 0.1}, "not both"),
        ("polynomial", {"lr_end": 0.7}, "lr_end=0.7 must be below"),
        ("warmup_stable_decay", {}, "needs 'num_decay_steps'"),
        ("warmup_stable_decay", {"num_decay_steps": 28}, "28 and 4 warmup steps do not fit in a run of 30 steps"),
        ("warmup_stable_decay", {"num_decay_steps": 8, "decay_type": "cos"}, "decay_type='cos'"),
    ],
)
def test_what_cannot_be_is_said(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        multiplier(name, warmup_steps=4, total_steps=30, learning_rate=RATE, **options)
