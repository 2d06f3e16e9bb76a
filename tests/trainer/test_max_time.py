"""A run stops, evaluates and saves within its time, and can let the learning rate end with it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from trainer import runs

import burnish
from burnish.callbacks.flow import OUT_OF_TIME
from burnish.checkpoint import find, layout, store
from burnish.core import run_clock
from burnish.core.errors import SettingError
from burnish.core.progress import TrainerState

STEP, EVALUATION, SAVE = 1.0, 4.0, 2.0


class Time(burnish.TrainerCallback):
    """A clock by which each step, evaluation and save takes a while; no real time in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.step = 0.0, STEP
        monkeypatch.setattr(run_clock, "now", lambda: self.now)
        write = store.write

        def writes(*args: Any) -> Path:
            self.now += SAVE
            return write(*args)

        monkeypatch.setattr(store, "write", writes)

    def on_step_begin(self, args: Any, state: TrainerState, control: Any, **details: Any) -> None:
        self.now += self.step

    def on_evaluate(self, args: Any, state: TrainerState, control: Any, **details: Any) -> None:
        self.now += EVALUATION


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def run(folder: Path, time: Time, *callbacks: Any, **settings: Any) -> Any:
    usual = {"max_steps": 100, "save_strategy": "steps", "save_steps": 10, "save_async": False}
    parts = {"callbacks": [time, *callbacks], "eval_dataset": tiny.class_rows(4)}
    return runs.trainer(folder, parts=parts, **{**usual, **settings})


def last_state(folder: Path) -> tuple[int, dict[str, Any]]:
    last = find.checkpoints(folder)[-1]
    return layout.step_of(last) or 0, json.loads((last / layout.BURNISH).read_text())["state"]


EVALUATED = {"eval_strategy": "steps", "eval_steps": 10}
ENDS: dict[str, dict[str, Any]] = {
    "steps": {},
    "evaluated": EVALUATED,
    "evaluated_by_passes": {"eval_strategy": "epoch", "save_strategy": "epoch"},
    "saved_never_else": {"save_strategy": "no", **EVALUATED},
    "best_only": {"save_strategy": "best", **EVALUATED},
}


@pytest.mark.parametrize("name", ENDS)
def test_it_stops_saves_and_evaluates_in_time(
    name: str, time: Time, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = run(tmp_path, time, max_time="60s", **ENDS[name])
    output = trainer.train()
    step = output.global_step
    assert 20 < step < 60 and time.now <= 60.0
    assert trainer.state.stop_reason == OUT_OF_TIME
    saved, state = last_state(tmp_path)
    assert saved == step and state["stop_reason"] == OUT_OF_TIME
    evaluated = [entry["step"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert evaluated[-1:] == ([step] if "eval_strategy" in ENDS[name] else [])
    assert len(evaluated) == len(set(evaluated))
    told = [record for record in caplog.records if "max_time" in record.getMessage()]
    assert len(told) == 1 and f"max_time=1m: stopping at step {step} of 100" in told[0].getMessage()
    assert json.loads((tmp_path / layout.RUN).read_text())["state"] == "stopped"


def test_at_least_one_step_is_taken(time: Time, tmp_path: Path) -> None:
    assert run(tmp_path, time, max_time=0.5).train().global_step == 1
    assert last_state(tmp_path)[0] == 1


def test_a_run_that_ends_before_its_time_is_an_ordinary_one(time: Time, tmp_path: Path) -> None:
    trainer = run(tmp_path, time, max_steps=5, max_time="1h")
    trainer.train()
    assert trainer.state.stop_reason is None and trainer.state.global_step == 5


def test_the_same_weights_as_a_run_in_one_go(time: Time, tmp_path: Path) -> None:
    """Each start has the whole time again; the learning rate goes by the steps of the run."""
    settings = {"max_steps": 30, "eval_strategy": "epoch", "save_strategy": "no"}
    straight = run(tmp_path / "straight", time, **settings)
    straight.train()
    ended = []
    for _ in range(9):
        trainer = run(tmp_path / "parts", time, max_time=20, **settings)
        ended.append(trainer.train(resume_from_checkpoint="auto").global_step)
        if ended[-1] == 30:
            break
    assert ended[-1] == 30 and len(ended) >= 3
    assert trainer.state.stop_reason is None
    assert runs.difference(straight.model, trainer.model) == 0.0


def test_a_bad_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"`max_time` = 'soon'.*'2h', '90m', '1d6h'"):
        runs.arguments(tmp_path, max_time="soon")
    with pytest.raises(SettingError, match="Set it, such as '2h'"):
        runs.arguments(tmp_path, fit_schedule_to_max_time=True)
    args = runs.arguments(tmp_path, max_time="2h")
    assert args.max_time == 7200.0
    args.max_time = "90m"
    assert args.max_time == 5400.0


# ---------------------------------------------------------------- a schedule that ends with the time


def rates(trainer: Any) -> list[float]:
    """As a share of the peak, step by step."""
    return [rate / 1e-3 for rate in runs.logged(trainer, "learning_rate").values()]


FIT = {"fit_schedule_to_max_time": True, "save_strategy": "no", "max_steps": 1000}


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_schedule_ends_with_the_time(schedule: str, time: Time, tmp_path: Path) -> None:
    trainer = run(tmp_path, time, max_time=50, lr_scheduler_type=schedule, **FIT)
    steps = trainer.train().global_step
    assert 40 < steps < 50
    found = rates(trainer)
    assert found[0] == 1.0 and all(later < earlier for earlier, later in itertools.pairwise(found))
    assert found[-1] < 1.5 / steps
    middle = found[steps // 2]
    assert 0.4 < middle < 0.6
    largest = max(earlier - later for earlier, later in itertools.pairwise(found))
    assert largest < 2.0 / steps, "no jump"


def test_a_pace_that_changes_is_followed(time: Time, tmp_path: Path) -> None:
    class Slower(burnish.TrainerCallback):
        def on_step_begin(self, args: Any, state: TrainerState, control: Any, **details: Any) -> None:
            time.step = 3.0 if state.global_step >= 20 else 1.0

    trainer = run(tmp_path, time, Slower(), max_time=100, **FIT)
    trainer.train()
    found = rates(trainer)
    assert all(later <= earlier for earlier, later in itertools.pairwise(found))
    assert found[-1] < 0.15


def test_a_warmup_in_steps_keeps_its_steps_and_one_in_shares_its_share(time: Time, tmp_path: Path) -> None:
    of_steps = run(tmp_path / "steps", time, max_time=60, warmup_steps=10, **FIT)
    steps = of_steps.train().global_step
    assert rates(of_steps)[:11] == pytest.approx([step / 10 for step in range(11)])
    time.now = 0.0
    shared = run(tmp_path / "share", time, max_time=60, warmup_steps=0.5, **FIT)
    shared.train()
    highest = max(range(steps - 5), key=rates(shared).__getitem__)
    assert abs(highest - steps / 2) < 4


def test_a_run_that_ends_by_its_steps_has_the_schedule_of_its_steps(time: Time, tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", time, max_steps=12)
    plain.train()
    fitted = run(tmp_path / "fitted", time, **{**FIT, "max_steps": 12, "max_time": "9h"})
    fitted.train()
    assert rates(fitted) == rates(plain)


def test_time_before_a_resume_counts_where_the_schedule_is_fitted(
    time: Time, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**FIT, "max_time": 60, "save_strategy": "steps", "save_steps": 10}

    class Stop(burnish.TrainerCallback):
        def on_step_end(self, args: Any, state: TrainerState, control: Any, **details: Any) -> None:
            control.should_training_stop |= state.global_step == 20

    broken = run(tmp_path, time, Stop(), **settings)
    broken.train()
    before = rates(broken)
    used = last_state(tmp_path)[1]["seconds_used"]
    assert 20.0 <= used <= 26.0
    time.now = 5000.0  # the break does not count
    resumed = run(tmp_path, time, **settings)
    steps = resumed.train(resume_from_checkpoint=True).global_step
    assert time.now - 5000.0 <= 60.0 - used and steps < 60
    after = rates(resumed)[20:]
    assert 0 < before[-1] - after[0] < 2.5 / steps
    assert after[-1] < 0.1
    again = run(tmp_path, time, **settings)
    assert again.train(resume_from_checkpoint=True).global_step == steps
    assert "Nothing is left to train" in caplog.text and "Set max_time higher" in caplog.text


def test_a_rate_that_follows_a_metric_cannot_be_fitted(time: Time, tmp_path: Path) -> None:
    trainer = run(
        tmp_path, time, **FIT, max_time=60, **EVALUATED, lr_scheduler_type="reduce_lr_on_plateau",
        metric_for_best_model="loss",
    )  # fmt: skip
    with pytest.raises(SettingError, match="no function of the step"):
        trainer.train()
