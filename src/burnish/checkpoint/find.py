"""Which checkpoint a run goes on from."""

from __future__ import annotations

import logging
from pathlib import Path

from burnish.core.errors import CheckpointError

from . import layout, staging
from .run_id import current_run, run_of
from .verify import problem_with

__all__ = ["checkpoints", "newest_good", "problem_with", "resolve"]

logger = logging.getLogger(__name__)

LATEST = ("True", "true", "last")
"""Words for "the newest one, and there must be one"; "auto" starts from the beginning where there is none."""


def checkpoints(output_dir: Path | str) -> list[Path]:
    """The checkpoint folders of `output_dir`, good or not, by step."""
    folder = Path(output_dir)
    inside = folder.iterdir() if folder.is_dir() else ()
    found = [(step, path) for path in inside if (step := layout.step_of(path)) is not None and path.is_dir()]
    return [path for _, path in sorted(found)]


def newest_good(output_dir: Path | str, run_id: str | None) -> Path | None:
    """The checkpoint with the highest step that is whole and of the run `run_id` (of any run where that is None).

    Those that are passed over are named in a warning each, with the reason.
    """
    for checkpoint in reversed(checkpoints(output_dir)):
        run = run_of(checkpoint)
        problem = problem_with(checkpoint, checksums=False)
        if problem is None and run_id is not None and run != run_id:
            problem = f"it is of another run ({run}; the run that wrote here last is {run_id})"
        problem = problem or problem_with(checkpoint)
        if problem is None:
            return checkpoint
        logger.warning("%s is passed over: %s.", checkpoint, problem)
    return None


def resolve(resume: str | Path | bool | None, output_dir: Path | str) -> Path | None:
    """The checkpoint that `resume_from_checkpoint` means; None for a start from the beginning.

    Args:
        resume: None or False (no resume), True or "true" or "last" (the newest good checkpoint of the run that wrote in
            `output_dir` last), "auto" (the same, or a start where there is none), or the path of a checkpoint.

    Raises:
        CheckpointError: there is no such checkpoint, or it is damaged. The message names those that can be used.
    """
    if resume is None or resume is False or str(resume) in ("False", "false", ""):
        return None
    if not isinstance(resume, (str, Path, bool)):
        raise CheckpointError(f"resume_from_checkpoint={resume!r}: it is the path of a checkpoint, True or 'auto'.")
    output_dir = Path(output_dir)
    staging.tidy(output_dir)
    if resume is not True and str(resume) not in (*LATEST, "auto"):
        return _given(Path(resume), output_dir)
    found = newest_good(output_dir, current_run(output_dir))
    if found is None and str(resume) != "auto":
        raise CheckpointError(
            f"resume_from_checkpoint={resume!r}: {output_dir} has no checkpoint of its latest run that can be used. "
            f"{_usable(output_dir)} Name one of another run by its path to go on from it, or leave "
            'resume_from_checkpoint out to start from the beginning ("auto" does so by itself).'
        )
    return found


def _given(checkpoint: Path, output_dir: Path) -> Path:
    problem = problem_with(checkpoint)
    if problem is None:
        return checkpoint
    places = [output_dir] if checkpoint.parent == output_dir else [output_dir, checkpoint.parent]
    if checkpoints(checkpoint):
        places = [checkpoint]
    raise CheckpointError(
        f"resume_from_checkpoint={str(checkpoint)!r} cannot be used: {problem}. "
        f"{' '.join(dict.fromkeys(map(_usable, places)))}"
    )


def _usable(folder: Path) -> str:
    good = [path.name for path in checkpoints(folder) if problem_with(path, checksums=False) is None]
    return f"Good checkpoints in {folder}: {', '.join(good) or 'none'}."
