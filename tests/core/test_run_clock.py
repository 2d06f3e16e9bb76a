"""When the time of a run is up, with a clock that moves as it is told."""

from __future__ import annotations

from typing import Any

import pytest

from burnish.core import run_clock
from burnish.core.run_clock import MARGIN, RunClock


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(run_clock, "now", made)
    return made


def step(clock: RunClock, time: Time, seconds: float) -> bool:
    time.now += seconds
    clock.step_ended()
    return clock.time_is_up()


def steps_until_up(time: Time, seconds: float = 1.0, **settings: Any) -> int:
    clock = RunClock(**settings)
    return next(number for number in range(1, 1000) if step(clock, time, seconds))


def test_without_a_limit_it_is_never_up(time: Time) -> None:
    clock = RunClock()
    assert not step(clock, time, 1e9) and clock.steps_left() is None


def test_the_next_step_would_be_over_the_limit(time: Time) -> None:
    assert steps_until_up(time, limit=10.5) == 10
    assert steps_until_up(time, limit=10.5, used=4.0) == 6
    assert steps_until_up(time, limit=10.5, begun=time.now - 4.0) == 6


def test_a_first_step_that_takes_long_is_not_taken_for_the_usual_one(time: Time) -> None:
    clock = RunClock(limit=20.0)
    assert step(clock, time, 10.0)  # as far as is known, the next takes as long
    clock = RunClock(limit=30.5)
    assert not step(clock, time, 10.0)
    assert [step(clock, time, 1.0) for _ in range(20)].index(True) == 19


def test_the_first_step_says_nothing_of_an_evaluation(time: Time) -> None:
    """It takes ten seconds, and each other one; an evaluation of 30 steps would take 5 minutes by the first."""
    clock = RunClock(limit=100.0, eval_steps=30.0)
    assert not step(clock, time, 10.0)
    assert clock.reserve == MARGIN * 10.0
    step(clock, time, 1.0)
    assert clock.reserve == MARGIN * 30.0
    for seconds in (1.0, 9.0, 1.0):
        step(clock, time, seconds)
    assert clock.reserve == MARGIN * 30.0, "one that takes long is not the usual one"


def test_an_end_that_was_not_measured_is_guessed(time: Time) -> None:
    assert steps_until_up(time, limit=20.5, save_guess=4.0) == 20 - 5
    assert steps_until_up(time, limit=20.5, save_guess=4.0, eval_steps=4.0) == 20 - 10
    assert steps_until_up(time, limit=20.5, eval_steps=None) == 20 - 3


def test_what_is_due_before_the_next_step_counts(time: Time) -> None:
    clock = RunClock(limit=20.0, save_guess=2.0, eval_steps=3.0)
    for _ in range(10):
        step(clock, time, 1.0)
    assert clock.reserve == MARGIN * 5.0
    assert not clock.time_is_up() and not clock.time_is_up(saves=True)
    assert clock.time_is_up(evaluates=True) and clock.time_is_up(evaluates=True, saves=True)


def test_what_was_measured_counts_in_place_of_the_guess(time: Time) -> None:
    clock = RunClock(limit=100.0, save_guess=50.0, eval_steps=50.0)
    with clock.evaluating():
        time.now += 2.0
    clock.save_begins()
    time.now += 3.0
    clock.save_ended()
    assert clock.reserve == MARGIN * 5.0
    with clock.evaluating():
        time.now += 1.0
    assert clock.reserve == MARGIN * 5.0, "the longest so far"


def test_evaluating_and_saving_are_no_part_of_a_step(time: Time) -> None:
    clock = RunClock(limit=1000.0)
    step(clock, time, 1.0)
    with clock.evaluating():
        time.now += 100.0
    with clock.away():
        time.now += 100.0
    step(clock, time, 1.0)
    assert clock._step_takes() == 1.0


def test_the_end_also_waits_for_a_checkpoint_that_is_being_written(time: Time) -> None:
    clock = RunClock(limit=100.0)
    clock.save_begins()
    time.now += 8.0
    clock.save_ended()
    clock.save_begins()
    assert clock.reserve == MARGIN * 16.0
    time.now += 6.0
    assert clock.reserve == MARGIN * 10.0
    time.now += 6.0
    assert clock.reserve == MARGIN * 8.0


def test_steps_left_at_the_pace_so_far(time: Time) -> None:
    """Two seconds a step, evaluations in it; the first step, which took long, is not."""
    clock = RunClock(limit=120.0)
    assert clock.steps_left() is None
    step(clock, time, 20.0)
    for _ in range(4):
        step(clock, time, 1.0)
        with clock.away():
            time.now += 1.0
    assert clock.steps_left() == (120 - 28) // 2


def test_a_save_is_due_so_long_after_the_last_one_whoever_asked_for_that(time: Time) -> None:
    clock = RunClock(save_every=60.0)
    assert not clock.save_is_due()
    time.now += 60.0
    assert clock.save_is_due()
    clock.save_begins()
    assert not clock.save_is_due()
    time.now += 59.0
    clock.save_begins()
    time.now += 59.0
    assert not clock.save_is_due()


def test_processes_agree(time: Time) -> None:
    """What is due on one is due on all, and of different guesses of the steps left there is one mean."""
    clock = RunClock(limit=100.0, save_every=60.0, sum_over_processes=lambda own: own + 1, num_processes=2)
    assert clock.time_is_up() and clock.save_is_due()
    for _ in range(3):
        step(clock, time, 1.0)
    assert clock.steps_left() == (97 + 1) // 2
