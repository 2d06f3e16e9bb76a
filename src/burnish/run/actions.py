"""What the loop has done for it when it is due: logging, evaluating, saving, moving the learning rate."""

from __future__ import annotations

import logging
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.checkpoint import layout, retention, store
from burnish.core.errors import CheckpointError
from burnish.core.progress import stateful
from burnish.evaluation.best import is_better, metric_value
from burnish.optim.schedulers import needs_metric

from .hooks import overridden, takes

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)


class RunActions:
    """The actions of one run of a trainer.

    Args:
        args: the settings as they were when the run began.
        position: what the place in the data depends on, saved with each checkpoint.
        run_id: names the run in its checkpoints.
        ignore_keys: outputs of the model that evaluations leave out.
    """

    def __init__(
        self, trainer: Trainer, args: Any, position: dict[str, Any], run_id: str, ignore_keys: list[str] | None
    ) -> None:
        self.trainer, self.args, self.position, self.run_id = trainer, args, position, run_id
        self.ignore_keys = ignore_keys
        self.output_dir = Path(args.output_dir)
        self._last_saved: int | None = None
        self._by_metric = trainer.lr_scheduler is not None and needs_metric(trainer.lr_scheduler)
        self.failed_save: CheckpointError | None = None

    def log(self, logs: dict[str, float]) -> None:
        self.trainer.log(logs)

    def learning_rate(self) -> float:
        return self.trainer._get_learning_rate()

    def advance_schedule(self) -> None:
        if self.trainer.lr_scheduler is None or self._by_metric:
            return
        with warnings.catch_warnings():
            # a first step that was left out, such as one that overflowed in float16, is no mistake of the order
            warnings.filterwarnings("ignore", r"Detected call of `lr_scheduler\.step\(\)` before", UserWarning)
            self.trainer.lr_scheduler.step()

    def evaluate(self) -> bool:
        metrics = self.trainer.evaluate(ignore_keys=self.ignore_keys)
        if self._by_metric:
            self.trainer.lr_scheduler.step(metric_value(metrics, self.args.metric_for_best_model or "loss"))
        return self._is_best(metrics) and self._keeps_best()

    def _keeps_best(self) -> bool:
        return bool(self.args.load_best_model_at_end) or str(self.args.save_strategy.value) == "best"

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

    def save(self) -> None:
        state = self.trainer.state
        if self._last_saved == state.global_step and state.best_global_step != state.global_step:
            return
        before = state.best_model_checkpoint
        if state.best_global_step == state.global_step:
            state.best_model_checkpoint = str(self.output_dir / layout.folder_name(state.global_step))
        try:
            store.write(self.output_dir, state.global_step, self._snapshot())
        except CheckpointError as error:
            state.best_model_checkpoint = before
            self.failed_save = error
            logger.error("checkpoint-%d was not saved: %s Training goes on.", state.global_step, error)
            return
        self._last_saved, self.failed_save = state.global_step, None
        self._retire()
        self.trainer.callback_handler.fire("on_save")

    def _snapshot(self) -> store.Snapshot:
        trainer = self.trainer
        trainer.state.stateful_callbacks = stateful([*trainer.callback_handler.callbacks, trainer.control])
        return store.Snapshot(
            model=trainer.model,
            processing_class=trainer.processing_class,
            optimizer=trainer.optimizer,
            scheduler=trainer.lr_scheduler,
            scaler=trainer.engine.precision.scaler,
            state=trainer.state,
            settings=self.args.to_dict(),
            position=self.position,
            run_id=self.run_id,
            only_model=self.args.save_only_model,
            write_model=self._write_model if overridden(trainer, "save_model") else None,
        )

    def _write_model(self, folder: Path) -> None:
        """By the user's own `save_model`."""
        save_model = self.trainer.save_model
        if takes(save_model, "_internal_call"):
            save_model(str(folder), _internal_call=True)
        else:
            save_model(str(folder))

    def _retire(self) -> None:
        best = self.trainer.state.best_model_checkpoint
        keep = {Path(best)} if best else set()
        if self.args.save_total_limit:
            retention.prune(self.output_dir, self.args.save_total_limit, keep, self.run_id)
