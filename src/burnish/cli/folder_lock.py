"""One run at a time in a folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from burnish.core.errors import UserError
from burnish.core.processes import launch

FILE_NAME = ".burnish.lock"


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps other runs out of the folder, which is made if need be, until the block or the process ends.

    Of several processes of one run, the first one holds it. Raises `UserError` where another run does.
    """
    if launch().index > 0:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE_NAME).open("w") as file:
        _take(file, folder)
        yield


def check_free(folder: Path) -> None:
    """Raises `UserError` where a run is under way in the folder."""
    path = folder / FILE_NAME
    if path.exists() and launch().index == 0:
        with path.open("w") as file:
            _take(file, folder)


def _take(file: IO[str], folder: Path) -> None:
    """The lock goes with the open file, so that a crash leaves none."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"Another run is under way in {folder}. Wait for its end, or choose another --output_dir."
        ) from None
    except OSError:  # a file system without locks
        return
