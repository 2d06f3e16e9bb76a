"""When a run logs, evaluates and saves, from its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from burnish.core.cadence import Cadence, in_steps
from burnish.core.progress import TrainerControl, TrainerState

POINTS_PER_RUN = 50
"""Logs of a run that does not set `logging_steps`."""

DEFAULT_STEPS = 500
"""Steps between two evaluations or checkpoints where no setting says more."""


@dataclass(frozen=True)
class Cadences:
    """The three rhythms of a run. Marking only ever asks for something; it never takes back what a callback asked."""

    log: Cadence
    evaluate: Cadence
    save: Cadence

    def mark_step(self, control: TrainerControl, state: TrainerState) -> None:
        """Asks for what is due after `state.global_step`, and for the end at `state.max_steps`."""
        step, last = state.global_step, state.max_steps
        control.should_log |= self.log.due_at_step(step, last)
        control.should_evaluate |= self.evaluate.due_at_step(step, last)
        control.should_save |= self.save.due_at_step(step, last)
        control.should_training_stop |= step >= last

    def mark_epoch(self, control: TrainerControl, state: TrainerState) -> None:
        """Asks for what is due after `state.epoch` passes over the data."""
        control.should_log |= self.log.due_at_epoch(state.epoch)
        control.should_evaluate |= self.evaluate.due_at_epoch(state.epoch)
        control.should_save |= self.save.due_at_epoch(state.epoch)

    def fill(self, state: TrainerState) -> None:
        """Writes the resolved numbers of steps into the state, where callbacks look for them."""
        state.logging_steps = self.log.every
        state.eval_steps = self.evaluate.every
        state.save_steps = self.save.every


def cadences_of(args: Any, max_steps: int) -> Cadences:
    """The rhythms that `args` ask for in a run of `max_steps` optimizer steps.

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
    )


def _word(strategy: Any) -> str:
    """A strategy may be a string or an enum of strings."""
    return str(getattr(strategy, "value", strategy))
