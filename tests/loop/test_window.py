"""Losses between two logs: a mean of the steps that had one, carried through a checkpoint."""

from __future__ import annotations

import math

import pytest
import torch

from burnish.core.progress import TrainerState
from burnish.core.types import StepReport
from burnish.loop.window import LossWindow

CPU = torch.device("cpu")


def report(loss: float, norm: float = 1.0) -> StepReport:
    values = torch.tensor(loss), torch.tensor(norm)
    return StepReport(*values, torch.isfinite(values[0]) & torch.isfinite(values[1]))


def test_the_mean_of_each_window_and_of_the_run() -> None:
    state = TrainerState()
    window = LossWindow(CPU, state)
    assert math.isnan(state.train_loss)
    for loss, norm in ((1.0, 5.0), (2.0, 6.0), (6.0, 7.0)):
        window.add(report(loss, norm))
    assert window.close(state) == {"loss": 3.0, "grad_norm": 7.0}
    window.add(report(11.0))
    assert window.close(state)["loss"] == 11.0
    assert (state.total_loss, state.num_loss_steps, state.train_loss) == (20.0, 4, 5.0)
    assert (state.unlogged_loss, state.unlogged_steps) == (0.0, 0)


def test_a_loss_that_is_not_finite_hides_no_other() -> None:
    state = TrainerState()
    window = LossWindow(CPU, state)
    for loss in (1.0, math.nan, 3.0, math.inf):
        window.add(report(loss))
    assert window.close(state)["loss"] == 2.0
    window.add(report(math.nan, math.nan))
    logs = window.close(state)
    assert "loss" not in logs and math.isnan(logs["grad_norm"])
    assert (state.train_loss, state.num_loss_steps) == (2.0, 2)


def test_an_empty_window_has_nothing_to_say() -> None:
    assert LossWindow(CPU, TrainerState()).close(TrainerState()) == {}


def test_a_window_goes_on_after_a_checkpoint() -> None:
    state = TrainerState()
    window = LossWindow(CPU, state)
    for loss in (1.0, 2.0):
        window.add(report(loss))
    window.into(state)
    assert (state.unlogged_loss, state.unlogged_steps, state.train_loss) == (3.0, 2, 1.5)
    resumed = LossWindow(CPU, state)
    resumed.add(report(6.0))
    assert resumed.close(state)["loss"] == pytest.approx(3.0)
    assert state.train_loss == pytest.approx(3.0)
