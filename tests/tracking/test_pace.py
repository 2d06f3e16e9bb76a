"""Rates are of training alone; the time left counts everything."""

from __future__ import annotations

import mmap

import pytest

from burnish.core.progress import TrainerState
from burnish.tracking.memory import memory_in_use
from burnish.tracking.pace import Mark, Pace, Rates, rates_between


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def step(state: TrainerState, pace: Pace, clock: Clock, seconds: float) -> None:
    clock.now += seconds
    state.global_step += 1
    state.num_examples_seen += 8
    state.num_input_tokens_seen += 80
    state.num_positions += 100
    state.num_positions_plain += 400
    pace.step_ended()


def test_evaluations_and_saves_do_not_count_as_training() -> None:
    clock, state = Clock(), TrainerState(max_steps=10)
    pace = Pace(state, clock)
    clock.now += 7  # an evaluation before the first step
    pace.interruption_ended()
    step(state, pace, clock, 2)
    for _ in range(3):  # batches of an evaluation, its end, a save
        clock.now += 5
        pace.interruption_ended()
    step(state, pace, clock, 2)
    assert pace.mark(state).seconds == 4
    rates = rates_between(pace.begin, pace.mark(state))
    assert rates == Rates(examples_per_second=4.0, tokens_per_second=40.0, padding_avoided=0.75)
    assert pace.elapsed() == 26
    assert pace.remaining(state) == 26 / 2 * 8


def test_a_resumed_run_counts_from_where_it_was_resumed() -> None:
    clock, state = Clock(), TrainerState(max_steps=10, global_step=5, num_examples_seen=1000)
    pace = Pace(state, clock)
    assert pace.remaining(state) is None
    step(state, pace, clock, 2)
    assert rates_between(pace.begin, pace.mark(state)).examples_per_second == 4.0
    assert pace.remaining(state) == 8.0


def test_what_was_not_counted_has_no_rate() -> None:
    nothing = Mark(0.0, 0, 0, 0, 0)
    assert rates_between(nothing, nothing) == Rates(None, None, None)
    assert rates_between(nothing, Mark(2.0, 8, 0, 0, 0)) == Rates(4.0, None, None)
    assert rates_between(nothing, Mark(2.0, 8, 0, 110, 100)).padding_avoided == 0.0


@pytest.mark.skipif("sys.platform == 'win32'")
def test_memory_grows_with_what_is_held() -> None:
    before = memory_in_use()
    with mmap.mmap(-1, 2**26) as held:  # from the system, not from what earlier tests have left on the heap
        held.write(b"x" * len(held))
        after = memory_in_use()
    assert before is not None and after is not None
    assert after - before > 2**25
