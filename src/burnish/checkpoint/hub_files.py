"""Which files of a checkpoint go to the hub, and under which names."""

from __future__ import annotations

import shlex
from fnmatch import fnmatch
from pathlib import Path

from . import layout

LAST_CHECKPOINT = "last-checkpoint"
"""Folder of the repository with the newest checkpoint."""

_STATE = (
    *(layout.OPTIMIZER, layout.SCHEDULER, layout.SCALER, layout.TRAINER_STATE, layout.BURNISH, layout.MANIFEST),
    *(f"{Path(layout.RNG_STATE).stem}*", f"{layout.DEEPSPEED}/*", f"{layout.PARTS}/*"),
)
"""What a run needs to go on, and nobody to use the model."""

_OF_THE_RUN = (f"{layout.PREFIX}*", layout.RUN, "*.jsonl", ".*")
"""In the output folder: what is not of the model."""


def of_model(checkpoint: Path) -> dict[str, Path]:
    """The files of the model in a checkpoint, by their names below it."""
    return {
        name: path for name, path in _files(checkpoint).items() if not any(fnmatch(name, state) for state in _STATE)
    }


def of_checkpoint(checkpoint: Path, folder: str) -> dict[str, Path]:
    """All files of a checkpoint, by their names below `folder` of the repository."""
    return {f"{folder}/{name}": path for name, path in _files(checkpoint).items()}


def _files(folder: Path) -> dict[str, Path]:
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path for name, path in found.items() if not any(part[0] == "." for part in name.split("/"))}


def command(repository: str, folder: Path | str, revision: str | None) -> str:
    """The command that uploads the model of an output folder by hand."""
    words = ["hf", "upload", repository, str(folder), "."]
    for pattern in _OF_THE_RUN:
        words += ["--exclude", pattern]
    return shlex.join([*words, *(("--revision", revision) if revision else ())])
