"""Lines that a person reads: the same place for the same number, a unit beside it, NaN in sight."""

from __future__ import annotations

import math

import numpy as np
import pytest

from burnish.core.progress import TrainerState
from burnish.tracking.lines import duration, metrics_line, number, pace_numbers, place, quantity, training_numbers
from burnish.tracking.pace import Rates


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.43119, "0.4312"),
        (12.345, "12.35"),
        (4821.2, "4821"),
        (3.14e-5, "3.1e-05"),
        (2.5e6, "2.5e+06"),
        (0.0, "0.0000"),
        (-0.5, "-0.5000"),
        (7, "7"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(8.12, "8.1"), (41.7, "42"), (812.4, "812"), (999.9, "1.0k"), (41234, "41.2k"), (412345, "412k"), (3.4e6, "3.4M")],
)
def test_quantities(value: float, text: str) -> None:
    assert quantity(value) == text


def test_durations() -> None:
    assert duration(192.4) == "0:03:12"
    assert duration(90000) == "1 day, 1:00:00"


def test_a_line_of_training_is_as_wide_at_the_first_step_as_at_the_last() -> None:
    first = place(TrainerState(global_step=1, max_steps=500, epoch=0.01, num_train_epochs=10))
    last = place(TrainerState(global_step=500, max_steps=500, epoch=10.0, num_train_epochs=10))
    assert first == "step   1/500  epoch  0.01"
    assert last == "step 500/500  epoch 10.00"
    one = training_numbers({"loss": 0.4312, "learning_rate": 4.1e-5, "grad_norm": 1.25})
    two = training_numbers({"loss": math.nan, "learning_rate": 0.0, "grad_norm": 0.5})
    assert one == "loss  0.4312  lr 4.1e-05  grad 1.2500"
    assert two == "loss     nan  lr 0.0e+00  grad 0.5000"


def test_what_else_was_logged_is_shown_under_its_name() -> None:
    line = training_numbers({"reward": np.float32(0.5), "epoch": 1.0, "note": "x" * 100, "total_flos": 1e12})
    assert line.startswith("reward 0.5000  note xxx")
    assert line.endswith("…")
    assert "epoch" not in line and "flos" not in line


def test_speed_padding_time_left_and_memory() -> None:
    rates = Rates(812.0, 41234.0, 0.864)
    assert pace_numbers(rates, 5 * 2**28, 192.0) == (
        "  812 ex/s  41.2k tok/s  padding avoided 86%  ETA 0:03:12  1.2 GiB"
    )
    assert pace_numbers(Rates(None, None, None), 300 * 2**20) == "300 MiB"
    assert pace_numbers(Rates(None, None, None), None) == ""


def test_an_evaluation_is_one_line_without_prefixes() -> None:
    state = TrainerState(global_step=120, max_steps=500, epoch=0.72, num_train_epochs=3)
    metrics = {
        "eval_loss": math.nan,
        "eval_accuracy": np.float64(0.8712),
        "eval_runtime": 2.12,
        "eval_samples_per_second": 410.2,
        "eval_steps_per_second": 12.1,
        "epoch": 0.72,
    }
    assert metrics_line("eval", metrics, state) == (
        "eval   step 120/500  epoch 0.72  loss nan  accuracy 0.8712  (2.1 s, 410 ex/s)"
    )
    assert metrics_line("eval_de", {"eval_de_f1": 0.5}, state) == "eval de  step 120/500  epoch 0.72  f1 0.5000"


def test_lists_of_numbers_are_short() -> None:
    line = metrics_line("eval", {"eval_f1_per_class": [0.73684210526, 1.0], "eval_runtime": 1.0}, TrainerState())
    assert "f1_per_class [0.7368 1.0000]" in line
