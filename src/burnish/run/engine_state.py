"""An optimizer's state that the processes have divided, on its way back out of a checkpoint: to the same engine, or
another one."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LambdaLR

from burnish.checkpoint import in_use, layout, restore, staging
from burnish.engines.deepspeed_universal import whole_state

from .time_limit import put_at_its_place

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)


def undivided(trainer: Trainer, checkpoint: Path) -> dict[str, Any] | None:
    """The optimizer's state in a checkpoint of DeepSpeed, for an engine that has it whole; None in other ones."""
    folder = checkpoint / layout.DEEPSPEED
    if not folder.is_dir():
        return None
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
    scratch = engine.processes.from_first(lambda: staging.trial_folder(Path(args.output_dir)))
    if engine.process_index == 0:
        ready.callback(shutil.rmtree, scratch, ignore_errors=True)
    whole = partial(restore.whole_optimizer_state, checkpoint)
    engine.resume_from(checkpoint / engine.state_folder, scratch, whole)


def restore_parts(trainer: Trainer, checkpoint: Path) -> None:
    """What each process holds of the optimizer's state, once the engine has divided it."""
    engine, scheduler = trainer.engine, trainer.lr_scheduler
    if engine.state_folder is None:
        return
    with in_use.held(checkpoint):
        engine.restore_state()
    if isinstance(scheduler, LambdaLR):
        put_at_its_place(scheduler, trainer.state)
