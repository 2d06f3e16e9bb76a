"""Checkpoints that somebody reads are not deleted meanwhile.

A reader holds a shared lock on the folder itself, which leaves no file and goes with the process. Other programs can
hold it too: ``flock --shared out/checkpoint-500 python evaluate.py``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows refuses by itself to rename a folder that is being read
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def held(checkpoint: Path | str) -> Iterator[None]:
    """Keeps a checkpoint from being deleted by any run until the block or the process ends. Where the file system has
    no locks, nothing is held."""
    with _locked(Path(checkpoint), shared=True):
        yield


@contextlib.contextmanager
def claimed(checkpoint: Path) -> Iterator[bool]:
    """True where nobody, in this process or another, reads it; then nobody begins to until the block ends."""
    with _locked(checkpoint, shared=False) as got:
        yield got


@contextlib.contextmanager
def _locked(folder: Path, shared: bool) -> Iterator[bool]:
    """False where somebody else has it. A file system without locks has it free."""
    if fcntl is None:
        yield True
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield True
        return
    try:
        yield _took(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    finally:
        os.close(handle)


def _took(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
