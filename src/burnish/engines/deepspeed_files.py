"""DeepSpeed's files of a checkpoint, which all processes write: one that cannot must not leave the others waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from burnish.core.errors import CheckpointError


def write(ds: Any, folder: Path, tag: str) -> None:
    """Writes `folder/tag`. All processes take part.

    DeepSpeed waits for all processes after its files. So what this process cannot write is raised once all are through.

    Raises:
        CheckpointError: a file could not be written.
    """
    failures: list[Exception] = []
    writer = ds.checkpoint_engine
    with contextlib.ExitStack() as stack:
        for owner, name in ((writer, "makedirs"), (writer, "save"), (ds, "_copy_recovery_script")):
            stack.enter_context(_raising_later(owner, name, failures))
        ds.save_checkpoint(str(folder), tag=tag, save_latest=False)
    if failures:
        raise CheckpointError(f"DeepSpeed could not write into {folder}: {failures[0]}") from failures[0]


@contextlib.contextmanager
def _raising_later(owner: Any, name: str, failures: list[Exception]) -> Iterator[None]:
    """Inside the context, failures of this method are put into the list."""
    known: Callable[..., Any] = getattr(owner, name)

    def remembered(*given: Any, **named: Any) -> None:
        try:
            known(*given, **named)
        except (OSError, RuntimeError) as error:  # torch's own writer raises the latter where a disk is full
            failures.append(error)

    setattr(owner, name, remembered)
    try:
        yield
    finally:
        delattr(owner, name)
