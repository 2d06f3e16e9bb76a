"""Checkpoints that somebody reads are not deleted meanwhile.

A reader holds a shared lock on the folder itself, which leaves no file and goes with the process. Other programs can
hold it too: ``flock --shared out/checkpoint-500 python evaluate.py``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from burnish.core.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows refuses by itself to rename a folder that is being read
    fcntl = None  # type: ignore[assignment]

PATIENCE = 2.0
"""Seconds for which a reader waits for whoever deletes or replaces, and who replaces for those who read."""
PAUSE = 0.02


@contextlib.contextmanager
def held(checkpoint: Path | str) -> Iterator[None]:
    """Keeps a checkpoint from being deleted by any run until the block or the process ends. Where the file system has
    no locks, or there is nothing of this name, nothing is held.

    Raises:
        CheckpointError: it is being deleted.
    """
    folder = Path(checkpoint)
    existed = folder.exists()
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if folder.exists() or not existed:  # it is gone for a moment while another takes its name
            with _locked(folder, shared=True) as handle:
                if handle is not None and _is_still(folder, handle):
                    yield
                    return
        time.sleep(PAUSE)
    raise CheckpointError(f"{folder} is being deleted by a run that keeps newer ones. Choose another checkpoint.")


@contextlib.contextmanager
def claimed(checkpoint: Path, patience: float = 0.0) -> Iterator[bool]:
    """True where nobody, in this process or another, reads it; then nobody begins to until the block ends.

    Args:
        patience: seconds to wait for those who do.
    """
    until = time.monotonic() + patience
    while True:
        with _locked(checkpoint, shared=False) as handle:
            if handle is not None or time.monotonic() >= until:
                yield handle is not None
                return
        time.sleep(PAUSE)


@contextlib.contextmanager
def _locked(folder: Path, shared: bool) -> Iterator[int | None]:
    """The open folder, -1 where it cannot be opened or locked; None where somebody else has it."""
    if fcntl is None:
        yield -1
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield -1
        return
    try:
        yield _took(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)  # a process that was forked meanwhile has the same lock
        os.close(handle)


def _took(handle: int, kind: int) -> int | None:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    except OSError:
        return -1
    return handle


def _is_still(folder: Path, handle: int) -> bool:
    """Whether an open folder still has its name; it may have been renamed before it was locked."""
    if handle < 0:
        return True
    try:
        return os.path.samestat(os.fstat(handle), os.stat(folder))
    except OSError:
        return False
