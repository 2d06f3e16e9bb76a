"""When a run logs, evaluates and saves, from its settings."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from burnish.core.cadence import Cadence, in_steps
from burnish.core.durations import in_words
from burnish.core.progress import TrainerControl, TrainerState
from burnish.core.run_clock import RunClock

logger = logging.getLogger(__name__)

POINTS_PER_RUN = 50
"""Logs of a run that does not set `logging_steps`."""

DEFAULT_STEPS = 500
"""Steps between two evaluations or checkpoints where no setting says more."""


OUT_OF_TIME = "max_time"
"""In `TrainerState.stop_reason`."""


@dataclass(frozen=True)
class Cadences:
    """The three rhythms of a run, and its clock. Marking only ever asks for something; it never takes back what a
    callback asked."""

    log: Cadence
    evaluate: Cadence
    save: Cadence
    clock: RunClock = field(default_factory=RunClock)

    def mark_step(self, control: TrainerControl, state: TrainerState) -> None:
        """Asks for what is due after `state.global_step`, and for the end at the last step or when the time is up."""
        step, last = state.global_step, state.max_steps
        self.clock.step_ended()
        control.should_save |= self.save.due_at_step(step, last) or self.clock.save_is_due()
        evaluates, saves = (self._due_by_now(one, state) for one in (self.evaluate, self.save))
        if step < last and self.clock.time_is_up(evaluates, saves or control.should_save):
            self._stop_in_time(control, state)
            last = step  # its checkpoint comes after the last evaluation: see `mark_epoch`
        control.should_log |= self.log.due_at_step(step, last)
        control.should_evaluate |= self.evaluate.due_at_step(step, last)
        control.should_training_stop |= step >= last

    def _due_by_now(self, one: Cadence, state: TrainerState) -> bool:
        """Also where it comes at the end of the pass that this step ends."""
        at_the_end = float(state.epoch).is_integer() and one.due_at_epoch(state.epoch)
        return at_the_end or one.due_at_step(state.global_step, state.max_steps)

    def _stop_in_time(self, control: TrainerControl, state: TrainerState) -> None:
        state.stop_reason = OUT_OF_TIME
        clock = self.clock
        limit, seconds = clock.limit or 0.0, clock.seconds
        logger.warning(
            "max_time=%s: stopping at step %d of %d after %s; %s are kept for a last evaluation and save. %s",
            *(in_words(limit), state.global_step, state.max_steps, in_words(seconds)),
            in_words(max(0.0, min(clock.reserve, limit - seconds))),
            "The learning rate is at the end of its schedule."
            if clock.of_whole_run
            else "resume_from_checkpoint='auto' goes on with the run.",
        )

    def mark_epoch(self, control: TrainerControl, state: TrainerState) -> None:
        """Asks for what is due after `state.epoch` passes over the data, and for the last checkpoint of a run that
        the clock ends or saves, whatever the strategy."""
        control.should_log |= self.log.due_at_epoch(state.epoch)
        control.should_evaluate |= self.evaluate.due_at_epoch(state.epoch)
        control.should_save |= self.save.due_at_epoch(state.epoch) or state.stop_reason == OUT_OF_TIME
        control.should_save |= self.clock.save_every is not None and state.global_step >= state.max_steps

    def fill(self, state: TrainerState) -> None:
        """Writes the resolved numbers of steps into the state, where callbacks look for them."""
        state.logging_steps = self.log.every
        state.eval_steps = self.evaluate.every
        state.save_steps = self.save.every


def cadences_of(args: Any, max_steps: int, clock: RunClock | None = None) -> Cadences:
    """The rhythms that `args` ask for in a run of `max_steps` optimizer steps, and its clock.

    Steps may be given as a share of the run (below 1). Without `logging_steps` a run logs about 50 times; without
    `eval_steps` it evaluates as often as `logging_steps` says, or every 500 steps where that isn't set either.
    """
    logging_steps = in_steps(args.logging_steps, max_steps, max(1, max_steps // POINTS_PER_RUN))
    first = args.logging_first_step is None or bool(args.logging_first_step)
    eval_steps = in_steps(args.eval_steps, max_steps, logging_steps if args.logging_steps else DEFAULT_STEPS)
    save_steps = in_steps(args.save_steps, max_steps, DEFAULT_STEPS)
    return Cadences(
        log=Cadence(_word(args.logging_strategy), logging_steps, first=first, last=True),
        evaluate=Cadence(_word(args.eval_strategy), eval_steps, last=True, delay=args.eval_delay or 0),
        save=Cadence(_word(args.save_strategy), save_steps, last=True),
        clock=clock or RunClock(),
    )


def _word(strategy: Any) -> str:
    """A strategy may be a string or an enum of strings."""
    return str(getattr(strategy, "value", strategy))
