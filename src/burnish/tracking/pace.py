"""How fast a run goes: counts of the state over the time spent in training."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from burnish.core.events import TrainerCallback
from burnish.core.progress import TrainerState


class Mark(NamedTuple):
    """Where a run was at the end of a step."""

    seconds: float
    """Time spent in training, without evaluations and saving."""
    examples: int
    tokens: int
    positions: int
    positions_plain: int
    flops: float = 0.0
    """Floating-point operations of the model, as `TrainerState.total_flos` counts them."""


class Rates(NamedTuple):
    """What happened between two marks; None where it was not counted."""

    examples_per_second: float | None
    tokens_per_second: float | None
    padding_avoided: float | None
    """Share of the positions of plain padded batches that were not computed, 0 to 1."""
    flops_per_second: float | None = None

    def share_of(self, peak: float | None) -> float | None:
        """Model FLOPs utilisation: the share of a peak (FLOP/s) that was reached; None where one of them is unknown."""
        return self.flops_per_second / peak if self.flops_per_second is not None and peak else None


def rates_between(earlier: Mark, later: Mark) -> Rates:
    """Rates over the training time between two marks."""
    seconds = later.seconds - earlier.seconds
    examples, tokens = later.examples - earlier.examples, later.tokens - earlier.tokens
    positions, plain = later.positions - earlier.positions, later.positions_plain - earlier.positions_plain
    return Rates(
        examples_per_second=examples / seconds if seconds > 0 and examples > 0 else None,
        tokens_per_second=tokens / seconds if seconds > 0 and tokens > 0 else None,
        padding_avoided=share_avoided(positions, plain),
        flops_per_second=(later.flops - earlier.flops) / seconds
        if seconds > 0 and later.flops > earlier.flops
        else None,
    )


def share_avoided(positions: int, positions_plain: int) -> float | None:
    """Share of the positions of plain padded batches that were not computed; None where there were none."""
    return max(0.0, 1 - positions / positions_plain) if positions_plain > 0 else None


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
            state.total_flos,
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


class Paced(TrainerCallback):
    """A callback that knows how fast the training goes, without the time of evaluations and saving."""

    def __init__(self) -> None:
        self.pace: Pace | None = None
        self._last: Mark | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self.pace = Pace(state)
        self._last = self.pace.begin

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if self.pace is not None:
            self.pace.step_ended()

    def on_prediction_step(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self._interrupted()

    def on_evaluate(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self._interrupted()

    def on_predict(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self._interrupted()

    def on_save(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self._interrupted()

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self.pace = None

    def on_exception(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self.pace = None

    def _interrupted(self) -> None:
        if self.pace is not None:
            self.pace.interruption_ended()

    def rates_since_last(self, state: TrainerState) -> Rates | None:
        """The rates since they were asked for the last time; None outside of a run. Ask when the loss was read: then
        the device has done all the steps that are counted."""
        if self.pace is None or self._last is None:
            return None
        self.pace.step_ended()
        now = self.pace.mark(state)
        rates, self._last = rates_between(self._last, now), now
        return rates

    def rates_of_run(self, state: TrainerState) -> Rates | None:
        """The rates since the run began, or went on; None outside of one."""
        return None if self.pace is None else rates_between(self.pace.begin, self.pace.mark(state))
