"""A checkpoint to which every process adds its part: one folder, one manifest, all of it or none."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from burnish.core.errors import CheckpointError
from burnish.core.protocols import Processes

from . import store
from .store import Snapshot


def write(
    target: Path,
    snapshot: Snapshot,
    processes: Processes,
    whole: Callable[[], dict[str, Any]],
    save_part: Callable[[Path], None],
) -> CheckpointError | None:
    """Writes the checkpoint `target`, which all processes call. The first one makes the folder and, once the parts of
    all are there, adds what it alone knows, seals it and gives it its name.

    Args:
        target: ``checkpoint-<step>`` of a folder that all processes see.
        whole: what the first process writes of what they hold together, as fields of the snapshot. The others help to
            gather it.
        save_part: writes what this process holds into the folder; all processes take part.

    Returns:
        Why it was not written, the same on all processes; None where it was.
    """
    folder, error = processes.from_first(lambda: _staged(target, snapshot))
    if folder is None:
        return error
    try:
        with store.told_as(target):
            gathered = whole()
            save_part(folder)
    except CheckpointError as failure:
        error = failure
    failures = [one for one in processes.all_of(error) if one is not None]

    def sealed() -> CheckpointError | None:
        if failures:
            shutil.rmtree(folder, ignore_errors=True)
            return failures[0]
        try:
            store.write(target.parent, snapshot.state.global_step, replace(snapshot, **gathered), folder)
        except CheckpointError as failure:
            return failure
        return None

    return processes.from_first(sealed)


def _staged(target: Path, snapshot: Snapshot) -> tuple[Path | None, CheckpointError | None]:
    try:
        with store.told_as(target):
            return store.stage(target.parent, snapshot.state.global_step, snapshot), None
    except CheckpointError as error:
        return None, error
