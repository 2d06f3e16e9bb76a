"""Which run a folder and a checkpoint belong to."""

from __future__ import annotations

import uuid
from pathlib import Path

from . import files, layout, manifest

UNNAMED = "unnamed"
"""The run of a checkpoint that says none, such as one of transformers. A run that goes on from it takes this name, so
that it finds and prunes what was written before."""


def new_run_id() -> str:
    """A name for a run that starts from the beginning; not drawn from the seeded generators."""
    return uuid.uuid4().hex[:12]


def current_run(output_dir: Path | str) -> str | None:
    """The run that wrote in `output_dir` last; None where that is not noted."""
    try:
        return str(files.read_json(Path(output_dir) / layout.RUN)["run_id"])
    except (OSError, ValueError, KeyError):
        return None


def run_of(checkpoint: Path) -> str:
    """The run that wrote a checkpoint."""
    try:
        return str(manifest.read(checkpoint)["run_id"])
    except (OSError, ValueError, KeyError):
        return UNNAMED
