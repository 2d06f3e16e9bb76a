"""Schedules on an optimizer: at any step the rate of a fresh run, without a warning."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from burnish.core.errors import SettingError
from burnish.optim.schedulers import make_scheduler, move_to, needs_metric

SETTINGS: dict[str, Any] = {"warmup_steps": 3, "total_steps": 20, "kwargs": '{"num_cycles": 0.75}'}


def two_groups(rate: float = 0.5) -> torch.optim.Optimizer:
    first, second = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    return torch.optim.AdamW([{"params": [first]}, {"params": [second], "lr": rate / 10}], lr=rate)


def rates(optimizer: torch.optim.Optimizer) -> list[float]:
    return [group["lr"] for group in optimizer.param_groups]


def run(optimizer: torch.optim.Optimizer, scheduler: Any, steps: int) -> list[list[float]]:
    """The rates of the next updates."""
    found = []
    for _ in range(steps):
        found.append(rates(optimizer))
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("step", [0, 1, 3, 11])
def test_a_schedule_starts_at_any_step_without_a_warning(step: int) -> None:
    straight = two_groups()
    expected = run(straight, make_scheduler("cosine", straight, **SETTINGS), 20)
    optimizer = two_groups()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler = make_scheduler("cosine", optimizer, **SETTINGS, step=step)
        assert scheduler.get_last_lr() == rates(optimizer) == expected[step]
        assert run(optimizer, scheduler, 20 - step) == expected[step:]


def test_moved_after_the_state_of_another_run_was_loaded() -> None:
    """Halfway through a run of 10 steps at rate 9; the run that goes on has 20 steps at rate 0.5."""
    earlier = two_groups(rate=9.0)
    before = make_scheduler("linear", earlier, warmup_steps=0, total_steps=10)
    run(earlier, before, 5)
    fresh = two_groups()
    expected = run(fresh, make_scheduler("linear", fresh, warmup_steps=2, total_steps=20), 20)
    optimizer = two_groups()
    scheduler = make_scheduler("linear", optimizer, warmup_steps=2, total_steps=20)
    optimizer.load_state_dict(earlier.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        move_to(scheduler, 5)
        assert scheduler.last_epoch == 5
        assert scheduler.get_last_lr() == rates(optimizer)
        assert run(optimizer, scheduler, 15) == expected[5:]


def test_a_schedule_of_the_user_is_moved() -> None:
    optimizer = two_groups()
    scheduler = LambdaLR(optimizer, lambda step: 0.5**step)
    move_to(scheduler, 3)
    assert rates(optimizer) == pytest.approx([0.0625, 0.00625])
    with pytest.raises(SettingError, match="StepLR"):
        move_to(torch.optim.lr_scheduler.StepLR(two_groups(), 2), 3)


def test_metric_driven_schedules() -> None:
    plateau = make_scheduler(
        "reduce_lr_on_plateau", two_groups(), warmup_steps=0, total_steps=9, kwargs="patience=0,factor=0.1"
    )
    assert isinstance(plateau, ReduceLROnPlateau)
    plateau.step(1.0)
    plateau.step(2.0)
    assert rates(plateau.optimizer) == pytest.approx([0.05, 0.005])
    greedy = make_scheduler(
        "greedy", two_groups(), warmup_steps=0, total_steps=9, kwargs={"patience": 0, "factor": 0.5, "min_lr": 0.01}
    )
    greedy.step(1.0)
    greedy.step(2.0)
    assert [needs_metric(scheduler) for scheduler in (plateau, greedy)] == [True, True]
    assert not needs_metric(make_scheduler("linear", two_groups(), warmup_steps=0, total_steps=9))


@pytest.mark.parametrize(
    ("name", "kwargs", "said"),
    [
        ("reduce_on_plateau", None, "unknown.*Did you mean 'reduce_lr_on_plateau'"),
        ("reduce_lr_on_plateau", {"patients": 3}, "'patients'.*patience.*Did you mean 'patience'"),
        ("greedy", {"patients": 3}, "'patients'.*patience.*Did you mean 'patience'"),
        ("greedy", {"factor": 2.0}, "'greedy'.*Factor"),
        ("cosine", "num_cycle=2", "Did you mean 'num_cycles'"),
    ],
)
def test_what_cannot_be_is_said(name: str, kwargs: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        make_scheduler(name, two_groups(), warmup_steps=0, total_steps=9, kwargs=kwargs)
