"""An optimizer's state that the processes have divided, on its way back out of a checkpoint: to the same engine, or
another one."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LambdaLR

from burnish.checkpoint import in_use, layout, parts, restore, staging
from burnish.checkpoint.copies import HeldState
from burnish.checkpoint.pretrained import save_configs
from burnish.checkpoint.store import Snapshot, save_processing_class
from burnish.engines.deepspeed_universal import whole_state

from .time_limit import put_at_its_place

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)


def is_divided(engine: Any) -> bool:
    """Whether a checkpoint is the work of all processes."""
    return engine.divides or engine.state_folder is not None


def _divides_by_weight(engine: Any) -> bool:
    """Whether an optimizer's state lies in the same parts as its weights (FSDP), or elsewhere (`state_folder`)."""
    return bool(engine.divides and engine.state_folder is None)


@dataclass(frozen=True)
class Parts:
    """What the processes hold together, on its way into a checkpoint: a `together.Held`."""

    trainer: Trainer
    snapshot: Snapshot

    def whole(self) -> dict[str, Any]:
        """What the first process is to write, as fields of a `Snapshot`."""
        engine: Any = self.trainer.engine
        if self.snapshot.write_model is not None or self._writes_parts_of_weights:
            found: dict[str, Any] = {"model_written": True}
        else:
            found = {"weights": engine.whole_weights()}
        if _divides_by_weight(engine) and not self.snapshot.only_model and not engine.sharding.writes_parts:
            kind = type(self.trainer.optimizer).__name__
            found["optimizer"] = HeldState(kind, engine.whole_optimizer_state())
        return found

    def save(self, folder: Path) -> None:
        """Writes what cannot be written behind the training: by code of the user's own, or by DeepSpeed."""
        engine: Any = self.trainer.engine
        with contextlib.ExitStack() as after:  # a process on which the first has failed takes part in the second
            if engine.state_folder is not None and not self.snapshot.only_model:
                after.callback(engine.save_state, folder / engine.state_folder)
            if self.snapshot.write_model is not None:
                self.snapshot.write_model(folder)
        if self._writes_parts_of_weights and engine.process_index == 0:
            save_configs(self.trainer.model, folder)
            save_processing_class(self.snapshot.processing_class, folder)

    def part(self) -> parts.Part | None:
        """What this process writes by itself of a model in parts."""
        engine: Any = self.trainer.engine
        weights = self._writes_parts_of_weights
        optimizer = None if self.snapshot.only_model else self.trainer.optimizer
        if not self._writes_parts or not (weights or optimizer is not None):
            return None
        return parts.part_of(self.trainer.model, optimizer, weights=weights, index=engine.process_index)

    @property
    def _writes_parts(self) -> bool:
        engine: Any = self.trainer.engine
        return _divides_by_weight(engine) and bool(engine.sharding.writes_parts)

    @property
    def _writes_parts_of_weights(self) -> bool:
        """Adapters are small, and always whole."""
        is_adapter = bool(getattr(self.trainer.model, "peft_config", None))
        return self._writes_parts and not is_adapter and self.snapshot.write_model is None


def undivided(trainer: Trainer, checkpoint: Path) -> dict[str, Any] | None:
    """The optimizer's state in a checkpoint in which the processes have written their parts, for an engine that has it
    whole, or divides it by weights; None in other checkpoints."""
    state, folder = _of_parts(trainer, checkpoint), checkpoint / layout.DEEPSPEED
    if state is not None or not folder.is_dir():
        return state
    logger.warning("The optimizer's state in %s was written by DeepSpeed, and is converted.", checkpoint)

    def converted() -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="burnish-") as scratch:
            assert trainer.optimizer is not None
            return whole_state(folder, Path(scratch), trainer.model, trainer.optimizer)

    return trainer.engine.processes.from_first(converted)


def announce(trainer: Trainer, args: Any, checkpoint: Path, ready: contextlib.ExitStack) -> None:
    """Tells an engine that divides the optimizer's state where it will find it, and gives it a place to convert it."""
    engine = trainer.engine
    if engine.state_folder is None:
        return
    scratch = engine.processes.from_first(lambda: staging.conversion_folder(Path(args.output_dir)))
    if engine.process_index == 0:
        ready.callback(shutil.rmtree, scratch, ignore_errors=True)
    whole = partial(_whole, trainer, checkpoint)
    engine.resume_from(checkpoint / engine.state_folder, scratch, whole)


def _whole(trainer: Trainer, checkpoint: Path) -> dict[str, Any]:
    state = _of_parts(trainer, checkpoint)
    return restore.whole_optimizer_state(checkpoint) if state is None else state


def _of_parts(trainer: Trainer, checkpoint: Path) -> dict[str, Any] | None:
    """The optimizer's state where processes with FSDP have each written a part of it; None elsewhere."""
    if not (checkpoint / layout.PARTS / parts.GROUPS).is_file():
        return None
    assert trainer.optimizer is not None, "create_optimizer comes first"
    return parts.optimizer_state(checkpoint, trainer.model, trainer.optimizer)


def restore_parts(trainer: Trainer, checkpoint: Path) -> None:
    """What each process holds of the optimizer's state, once the engine has divided it."""
    engine, scheduler = trainer.engine, trainer.lr_scheduler
    if engine.state_folder is None:
        return
    with in_use.held(checkpoint):
        engine.restore_state(trainer.state.global_step)
    if isinstance(scheduler, LambdaLR):
        put_at_its_place(scheduler, trainer.state)
