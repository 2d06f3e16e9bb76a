"""How to go on with a run that ended before its last step, or without its last checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from burnish.core.errors import CheckpointError, UnsavedError
from burnish.core.processes import launch
from burnish.loop.signals import signal_of

from .console import complain, say
from .settings import Settings


@contextlib.contextmanager
def told_when_stopped(settings: Settings) -> Iterator[None]:
    """Where Ctrl-C or a signal ends what is inside: says where the run stands, and the command that goes on."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as end:
        if launch().index == 0 and (isinstance(end, KeyboardInterrupt) or signal_of(end) is not None):
            complain(how_to(settings))
        raise


def how_to(settings: Settings) -> str:
    """The command that goes on, and from where."""
    from burnish.checkpoint.find import checkpoints

    command, found = resuming_command(settings), checkpoints(settings.output_dir)
    from_where = f"goes on from {found[-1].name}" if found else "starts anew, since nothing was saved yet"
    return f"{'The same' if command == settings.command else 'This'} command {from_where}:\n  {command}"


def resuming_command(settings: Settings) -> str:
    """The command as it was given, but that it neither starts anew nor goes back to the checkpoint it named."""
    added = ["--no_overwrite_output_dir"] if settings.run["overwrite_output_dir"] else []
    named = settings.training.get("resume_from_checkpoint")
    if named and str(named).lower() not in ("true", "false", "last", "auto"):
        added.append("--resume_from_checkpoint")
    return " ".join([settings.command, *added])


def say_how_after(settings: Settings, reason: str | None) -> None:
    """After a run that stopped in time."""
    say(f"\nThe run is not at its end ({reason}). {how_to(settings)}")


def with_model_rescued(error: UnsavedError, trainer: Any, settings: Settings) -> UnsavedError:
    """The error with what could be done: the model alone takes a third of the room of a checkpoint."""
    try:
        trainer.save_model()
        rescued = f"The model itself is in {settings.output_dir}."
    except (CheckpointError, OSError) as failure:
        rescued = f"Nor could the model alone: {failure}"
    return UnsavedError(
        f"The training has ended, and its last checkpoint could not be written: {error.__cause__} {rescued}\n"
        f"Make room on the disk. {how_to(settings)}"
    )
