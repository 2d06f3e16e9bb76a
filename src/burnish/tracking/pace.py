"""How fast a run goes: counts of the state over the time spent in training."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from burnish.core.progress import TrainerState


class Mark(NamedTuple):
    """Where a run was at the end of a step."""

    seconds: float
    """Time spent in training, without evaluations and saving."""
    examples: int
    tokens: int
    positions: int
    positions_plain: int


class Rates(NamedTuple):
    """What happened between two marks; None where it was not counted."""

    examples_per_second: float | None
    tokens_per_second: float | None
    padding_avoided: float | None
    """Share of the positions of plain padded batches that were not computed, 0 to 1."""


def rates_between(earlier: Mark, later: Mark) -> Rates:
    """Rates over the training time between two marks."""
    seconds = later.seconds - earlier.seconds
    examples, tokens = later.examples - earlier.examples, later.tokens - earlier.tokens
    positions, plain = later.positions - earlier.positions, later.positions_plain - earlier.positions_plain
    return Rates(
        examples_per_second=examples / seconds if seconds > 0 and examples > 0 else None,
        tokens_per_second=tokens / seconds if seconds > 0 and tokens > 0 else None,
        padding_avoided=max(0.0, 1 - positions / plain) if plain > 0 else None,
    )


class Pace:
    """A stopwatch that stands still during evaluations and saving.

    There is no event for the begin of an evaluation. So the time between the end of a step (or of an interruption)
    and the end of the next interruption is what the interruption took.
    """

    def __init__(self, state: TrainerState, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._begun = self._latest = clock()
        self._interrupted = 0.0
        self._first_step = state.global_step
        self.begin = self.mark(state)

    def step_ended(self) -> float:
        """Notes the end of a step; returns the time of the clock, in seconds."""
        self._latest = self._clock()
        return self._latest

    def interruption_ended(self) -> None:
        """An evaluation, a batch of it, or a save is done."""
        now = self._clock()
        self._interrupted += now - self._latest
        self._latest = now

    def mark(self, state: TrainerState) -> Mark:
        """The counts of the state, with the training time up to the end of the last step."""
        return Mark(
            self._latest - self._begun - self._interrupted,
            state.num_examples_seen,
            state.num_input_tokens_seen,
            state.num_positions,
            state.num_positions_plain,
        )

    def elapsed(self) -> float:
        """Seconds since the begin, interruptions included."""
        return self._clock() - self._begun

    def remaining(self, state: TrainerState) -> float | None:
        """Seconds until the last step if evaluations and saves go on as before; None before the first step."""
        done = state.global_step - self._first_step
        if done <= 0:
            return None
        return self.elapsed() / done * max(0, state.max_steps - state.global_step)
