"""Ending a run whose metric has stopped getting better."""

from __future__ import annotations

import logging
import math
from typing import Any

from burnish.core.errors import SettingError, did_you_mean
from burnish.core.events import TrainerCallback
from burnish.core.progress import ExportableState, TrainerControl, TrainerState

logger = logging.getLogger(__name__)


class EarlyStoppingCallback(TrainerCallback, ExportableState):
    """Asks for a stop after `early_stopping_patience` evaluations in a row without a better `metric_for_best_model`.

    Better is: further than `early_stopping_threshold` (in units of the metric) beyond the best value that this callback
    has seen, in the direction of `greater_is_better`. The first number is always the best so far; NaN never is. The
    best value is kept here and saved with checkpoints, so the order of callbacks does not matter.

    Raises:
        SettingError: when training begins without `metric_for_best_model`, `greater_is_better` or evaluations, and
            when an evaluation does not have the metric.
    """

    def __init__(self, early_stopping_patience: int = 1, early_stopping_threshold: float | None = 0.0) -> None:
        if early_stopping_patience < 1:
            raise SettingError(f"early_stopping_patience={early_stopping_patience} must be at least 1 evaluation.")
        self.early_stopping_patience = early_stopping_patience
        self.early_stopping_threshold = early_stopping_threshold or 0.0
        self.early_stopping_patience_counter = 0
        self.best: float | None = None
        self._others: set[str] = set()

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Refuses settings under which it could never stop; forgets an earlier run unless this one is resumed."""
        if args.metric_for_best_model is None:
            raise SettingError(
                "EarlyStoppingCallback does not know what to watch. Set metric_for_best_model, such as "
                "metric_for_best_model='eval_loss'."
            )
        if args.greater_is_better is None:
            raise SettingError(
                f"EarlyStoppingCallback does not know in which direction {args.metric_for_best_model!r} gets better. "
                "Set greater_is_better=True or greater_is_better=False."
            )
        if args.eval_strategy == "no":
            raise SettingError(
                "EarlyStoppingCallback needs evaluations during training, and eval_strategy is 'no'. "
                "Set eval_strategy='epoch' or eval_strategy='steps'."
            )
        if state.global_step == 0:
            self.early_stopping_patience_counter = 0
            self.best = None
        self._others.clear()

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Counts evaluations that were not better, and asks for a stop when patience is at its end."""
        if args.metric_for_best_model is None:
            return  # an evaluation outside of training
        value = self._value(args.metric_for_best_model, kwargs["metrics"])
        if value is None:
            return
        if self._is_better(value, args.greater_is_better):
            self.best = value
            self.early_stopping_patience_counter = 0
        else:
            self.early_stopping_patience_counter += 1
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True

    def _is_better(self, value: float, greater_is_better: bool) -> bool:
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        gain = value - self.best if greater_is_better else self.best - value
        return gain > self.early_stopping_threshold

    def _value(self, name: str, metrics: dict[str, Any]) -> float | None:
        """The watched number, or None where these are the metrics of another dataset than the one watched."""
        name = name if name.startswith("eval_") else f"eval_{name}"
        if name in metrics:
            self._others.clear()
            return float(metrics[name])
        evaluated = next((key[: -len("_runtime")] for key in metrics if key.endswith("_runtime")), "eval")
        if evaluated == "eval" or name.startswith(f"{evaluated}_"):
            raise SettingError(_unknown(name, metrics))
        if evaluated in self._others:  # evaluated for the second time, and none of the others had it in between
            logger.warning("Early stopping is idle. %s", _unknown(name, metrics))
        self._others.add(evaluated)
        return None

    def state(self) -> dict[str, Any]:
        return {
            "args": {
                "early_stopping_patience": self.early_stopping_patience,
                "early_stopping_threshold": self.early_stopping_threshold,
            },
            "attributes": {
                "early_stopping_patience_counter": self.early_stopping_patience_counter,
                "best": self.best,
            },
        }


def _unknown(name: str, metrics: dict[str, Any]) -> str:
    return (
        f"metric_for_best_model is {name!r}, and the evaluation has no such number. "
        f"It has: {', '.join(sorted(metrics))}.{did_you_mean(name, metrics)}"
    )
