"""What the loop has done for it when it is due: logging, evaluating, saving, moving the learning rate."""

from __future__ import annotations

import logging
import math
import warnings
from typing import TYPE_CHECKING, Any

from burnish.callbacks.flow import OUT_OF_TIME
from burnish.core.protocols import StopRequest
from burnish.core.run_clock import RunClock
from burnish.evaluation.best import is_better, metric_value
from burnish.optim.schedulers import needs_metric

from . import hub
from .saving import Saving
from .time_limit import FittedSchedule

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)


class RunActions:
    """The actions of one run of a trainer.

    Args:
        args: the settings as they were when the run began.
        saving: writes the checkpoints.
        clock: of the run.
        ignore_keys: outputs of the model that evaluations leave out.
    """

    def __init__(
        self, trainer: Trainer, args: Any, saving: Saving, clock: RunClock, ignore_keys: list[str] | None
    ) -> None:
        self.trainer, self.args, self.saving, self.clock = trainer, args, saving, clock
        self.ignore_keys = ignore_keys
        self._by_metric = trainer.lr_scheduler is not None and needs_metric(trainer.lr_scheduler)
        self._fitted = FittedSchedule.of(trainer, args, clock, trainer.state.max_steps)
        self._advanced = False

    def log(self, logs: dict[str, float]) -> None:
        self.trainer.log(logs)

    def learning_rate(self) -> float:
        return self.trainer._get_learning_rate()

    def advance_schedule(self) -> None:
        if self.trainer.lr_scheduler is None or self._by_metric:
            return
        advance = self.trainer.lr_scheduler.step if self._fitted is None else self._fitted.advance
        if self._advanced:
            advance()
            return
        self._advanced = True
        with warnings.catch_warnings():
            # a first step that was left out, such as one that overflowed in float16, is no mistake of the order
            warnings.filterwarnings("ignore", r"Detected call of `lr_scheduler\.step\(\)` before", UserWarning)
            advance()

    def evaluate(self) -> bool:
        self.saving.look(wait=True)  # which evaluation is the best depends on whether its checkpoint was written
        with self.clock.evaluating():
            own = self.trainer.evaluate(ignore_keys=self.ignore_keys)
        metrics = self.trainer.engine.processes.from_first(lambda: own)  # all decide by the same numbers
        if self._by_metric:
            self.trainer.lr_scheduler.step(metric_value(metrics, self.args.metric_for_best_model or "loss"))
        is_best = self._is_best(metrics)
        return (is_best and self.saving.keeps_best) or self.saving.is_among_the_best()

    def _is_best(self, metrics: dict[str, Any]) -> bool:
        if self.args.metric_for_best_model is None:
            return False
        state = self.trainer.state
        value = metric_value(metrics, self.args.metric_for_best_model)
        if math.isnan(value):
            logger.warning(
                "%s is NaN in the evaluation at step %d, which is therefore not the best one.",
                self.args.metric_for_best_model,
                state.global_step,
            )
        if not is_better(value, state.best_metric, bool(self.args.greater_is_better)):
            return False
        state.best_metric, state.best_global_step = value, state.global_step
        return True

    def try_saving(self) -> None:
        self.saving.try_out()

    def save(self) -> None:
        state, limit = self.trainer.state, self.clock.limit
        if limit is not None:  # what is left of it when it is over is for the end
            state.seconds_used = limit if state.stop_reason == OUT_OF_TIME else self.clock.seconds
        with self.clock.away():
            self.saving.save()

    def look_at_saves(self) -> None:
        with self.clock.away():
            self.saving.look()

    def let_saves_end(self) -> None:
        with self.clock.away():
            self.saving.let_end()

    def finish_saves(self) -> None:
        with self.clock.away():
            self.saving.finish()
        state = self.trainer.state
        if state.stop_reason not in (None, OUT_OF_TIME):
            saved = "that step was not saved" if self.saving.failed else "it is saved"
            logger.warning(
                "%s stopped the run after step %d of %d; %s. resume_from_checkpoint='auto' goes on with the run.",
                *(state.stop_reason, state.global_step, state.max_steps, saved),
            )

    def refuse_unsaved(self) -> None:
        self.saving.refuse_unsaved()

    def finish_uploads(self, stop: StopRequest) -> None:
        if self.args.push_to_hub:
            hub.finish(self.trainer, self.args, stop)
            self.saving.rotate()
