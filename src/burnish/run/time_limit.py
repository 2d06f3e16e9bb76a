"""The time that a run may take, and a schedule of the learning rate that ends with it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LambdaLR

from burnish.callbacks.flow import OUT_OF_TIME
from burnish.core.durations import in_words
from burnish.core.errors import SettingError
from burnish.core.progress import TrainerControl, TrainerState
from burnish.core.run_clock import RunClock
from burnish.core.zero_parts import num_elements
from burnish.optim.schedulers import move_to

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)

SAVE_SPEED = 1e8
"""Bytes that a disk is taken to write in a second, checksums and syncing in it, until a save was measured."""
SAVE_AT_LEAST = 2.0
"""Seconds."""


def clock_of(trainer: Trainer, args: Any, begun: float) -> RunClock:
    """The clock of a run that begins, or goes on, where the trainer's state is.

    Args:
        begun: when `train()` was called, by `run_clock.now`.
    """
    state: TrainerState = trainer.state
    state.stop_reason = None
    if not args.fit_schedule_to_max_time:
        state.seconds_used, state.schedule_step = 0.0, None
    weights = sum(num_elements(weight) * weight.element_size() for weight in trainer.model.parameters())
    return RunClock(
        limit=args.max_time,
        used=state.seconds_used,
        of_whole_run=args.fit_schedule_to_max_time,
        save_every=None if args.save_minutes is None else 60 * args.save_minutes,
        save_guess=SAVE_AT_LEAST + 3 * weights / SAVE_SPEED,  # with the two moments of Adam
        eval_steps=_steps_of_evaluation(trainer, args),
        begun=begun,
        sum_over_processes=trainer.engine.sum_over_processes,
        num_processes=trainer.engine.num_processes,
    )


def _steps_of_evaluation(trainer: Trainer, args: Any) -> float | None:
    """An evaluation in training steps with as many examples; None where its data have no length."""
    if str(args.eval_strategy) == "no":
        return 0.0
    data = trainer.eval_dataset
    try:
        examples = sum(map(len, data.values())) if isinstance(data, dict) else len(data)
    except TypeError:
        return None
    return examples / (args.train_batch_size * args.gradient_accumulation_steps)


def stop_before_the_first_step(clock: RunClock, state: TrainerState, control: TrainerControl) -> None:
    """Asks for the end of a run whose time was used by the starts before."""
    if clock.used and state.global_step < state.max_steps and clock.time_is_up():
        control.should_training_stop = True
        state.stop_reason = OUT_OF_TIME
        logger.warning(
            "Nothing is left to train: %s of max_time=%s are used, and the rest is kept for an evaluation and a save. "
            "Set max_time higher to train on; with fit_schedule_to_max_time it is the time of the whole run.",
            *(in_words(clock.used), in_words(clock.limit or 0)),
        )


@dataclass
class FittedSchedule:
    """Walks through a schedule so that it ends when the time does.

    The schedule is laid over `total_steps` as always. As long as the pace is not known, each step moves on by one in
    it. Then each moves on by what is left of the schedule, divided by the steps that are left in time at the pace so
    far, and by one at least: the learning rate has no jumps when the estimate changes, and is where the last step
    of the schedule has it when the time is up. A warmup given as a number of steps keeps that number.
    """

    scheduler: Any
    clock: RunClock
    state: TrainerState
    total_steps: int
    warmup_steps: int
    """Those that are walked one by one; 0 where the warmup is a share of the run."""

    @classmethod
    def of(cls, trainer: Trainer, args: Any, clock: RunClock, total_steps: int) -> FittedSchedule | None:
        """None where no fit is asked for.

        Raises:
            SettingError: the rate is no function of the step.
        """
        if not args.fit_schedule_to_max_time:
            return None
        if not isinstance(trainer.lr_scheduler, LambdaLR):
            raise SettingError(
                f"`fit_schedule_to_max_time=True`: a {type(trainer.lr_scheduler).__name__} is no function of the step, "
                "and cannot be walked through faster. Choose another `lr_scheduler_type`, or leave the fit out."
            )
        warmup = args.get_warmup_steps(total_steps) if args.warmup_steps >= 1 else 0
        return cls(trainer.lr_scheduler, clock, trainer.state, total_steps, warmup)

    def advance(self) -> None:
        """Moves the learning rate to where the next step has it."""
        place = self.state.schedule_step
        place = float(self.state.global_step) if place is None else place
        place = min(place + self._stride(place), float(self.total_steps))
        self.state.schedule_step = place
        self.scheduler.last_epoch = place - 1
        self.scheduler.step()

    def _stride(self, place: float) -> float:
        left = self.clock.steps_left()
        if left is None or place < self.warmup_steps:
            return 1.0
        # of `left` steps that are still made, the last is one stride before the end
        return max(1.0, (self.total_steps - place) / (left + 1))


def put_at_its_place(scheduler: LambdaLR, state: TrainerState) -> None:
    """Moves a schedule to the step of the run, or to where a fitted one stood."""
    place = state.global_step if state.schedule_step is None else state.schedule_step
    move_to(scheduler, place)
