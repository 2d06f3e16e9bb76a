"""Folders that appear whole or not at all, and disappear the same way.

Everything is prepared beside its place under a name that starts with a dot and ends with the process (see
`process.label`), and moved by one rename. What a process that has died left behind is finished or removed by `tidy`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
from pathlib import Path

from . import files, handover, in_use, layout, process
from .verify import problem_with

STAGING = ".staging-"
"""A checkpoint being written."""
REPLACED = ".replaced-"
"""A checkpoint that gives its name to a new one."""
TRASH = ".trash-"
"""A checkpoint that is being deleted."""

TRIAL = f"{STAGING}trial-"
"""Parts of a checkpoint, tried out."""
CONVERSION = f"{STAGING}conversion-"
"""The state of an optimizer, made fit for another engine."""
MODEL = f"{STAGING}model-"
"""A model being exported."""
DRAFTS = (f"{TRIAL}*", f"{CONVERSION}*", f".{layout.RUN}-*")
"""A trial, a conversion, and the manifest of the run that writes here."""
SIGN_OF_LIFE = 600
"""Seconds without a change after which what another machine has begun counts as left behind."""


def staging_folder(output_dir: Path, step: int) -> Path:
    """An empty folder to write the checkpoint of `step` in: ``.staging-checkpoint-<step>-<process>``."""
    return _empty(_beside(output_dir / layout.folder_name(step), STAGING))


def trial_folder(output_dir: Path) -> Path:
    """An empty folder to try out saving in: ``.staging-trial-<process>``."""
    return _empty(output_dir / f"{TRIAL}{process.label()}")


def conversion_folder(output_dir: Path) -> Path:
    """An empty folder to convert the state of an optimizer in: ``.staging-conversion-<process>``."""
    return _empty(output_dir / f"{CONVERSION}{process.label()}")


def model_folder(folder: Path) -> Path:
    """An empty folder to write a model in that is to be moved into `folder`: ``.staging-model-<process>``."""
    return _empty(folder / f"{MODEL}{process.label()}")


def finish_models(folder: Path, *, ours: bool) -> None:
    """Moves in the models that were complete when whoever saved them was stopped, and deletes those that were not.

    Args:
        ours: also those that this process has begun, which is exporting none now.
    """
    for leftover in folder.glob(f"{MODEL}*"):
        if _is_at_work(leftover) or (_is_ours(leftover) and not ours):
            continue
        if handover.is_sealed(leftover):
            handover.move_in(leftover, folder)
        shutil.rmtree(leftover, ignore_errors=True)


def publish(staging: Path, target: Path) -> None:
    """Gives a complete folder, synced already, its name. An older folder of that name goes once the new one stands.

    Raises:
        OSError: the older one is being read, and so stays (see `in_use`).
    """
    if not target.exists():
        os.rename(staging, target)
        files.sync(target.parent)
        return
    with in_use.claimed(target, in_use.PATIENCE) as nobody_reads_it:
        if not nobody_reads_it:
            raise OSError(errno.EBUSY, "the older checkpoint of this name is being read", str(target))
        _replace(staging, target)


def _replace(staging: Path, target: Path) -> None:
    replaced = _beside(target, REPLACED)
    os.rename(target, replaced)
    try:
        os.rename(staging, target)
    except BaseException:
        if not target.exists():
            os.rename(replaced, target)
        raise
    files.sync(target.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def discard(folder: Path) -> None:
    """Deletes a checkpoint by renaming it first, so that a crash leaves no half of it under its name."""
    trash = _beside(folder, TRASH)
    os.rename(folder, trash)
    files.sync(folder.parent)
    shutil.rmtree(trash, ignore_errors=True)


def tidy(output_dir: Path) -> None:
    """Ends what processes that are gone have begun: a staged checkpoint with its manifest gets its name, one that was
    moved aside for a new one that never came gets its name back, the rest is deleted.

    Call it when no save of this process is under way.
    """
    if not output_dir.is_dir():
        return
    for leftover in sorted(output_dir.glob(f"{STAGING}*"), reverse=True) + sorted(output_dir.glob(f"{REPLACED}*")):
        target = _target_of(leftover)
        if target is None or _is_at_work(leftover):
            continue
        whole = leftover.name.startswith(REPLACED) or _is_complete(leftover)
        if whole and not target.exists():
            with contextlib.suppress(OSError):  # another process was first
                os.rename(leftover, target)
        shutil.rmtree(leftover, ignore_errors=True)
    for leftover in output_dir.glob(f"{TRASH}*"):
        if not _is_at_work(leftover):
            shutil.rmtree(leftover, ignore_errors=True)
    for leftover in [path for pattern in DRAFTS for path in output_dir.glob(pattern)]:
        if not _is_at_work(leftover) and not _is_ours(leftover):
            shutil.rmtree(leftover, ignore_errors=True) if leftover.is_dir() else leftover.unlink(missing_ok=True)
    finish_models(output_dir, ours=False)


def _beside(folder: Path, kind: str) -> Path:
    return folder.with_name(f"{kind}{folder.name}-{process.label()}")


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _target_of(leftover: Path) -> Path | None:
    found = re.fullmatch(rf"\.[a-z]+-({layout.PREFIX}\d+)-[^-].*", leftover.name)
    return leftover.with_name(found.group(1)) if found else None


def _is_complete(staged: Path) -> bool:
    return (staged / layout.MANIFEST).exists() and problem_with(staged, checksums=False) is None


def _is_ours(leftover: Path) -> bool:
    """This process may be exporting a model in one thread while it writes a checkpoint in another."""
    maker = process.labelled(leftover.name)
    return maker is not None and maker["pid"] == os.getpid() and process.is_alive(maker) is True


def _is_at_work(leftover: Path) -> bool:
    """Whether the process that made it is another one that lives on. One on another machine is taken to live for
    some minutes after it last wrote something."""
    maker = process.labelled(leftover.name)
    if maker is None or _is_ours(leftover):
        return False
    is_alive = process.is_alive(maker)
    return changed(leftover) > time.time() - SIGN_OF_LIFE if is_alive is None else is_alive


def changed(leftover: Path) -> float:
    """When something in it was last written, or it was given its name; seconds since 1970."""
    times = [0.0]
    for path in (leftover, *leftover.rglob("*")):
        with contextlib.suppress(OSError):  # being written
            times.append(path.lstat().st_ctime)
    return max(times)
