"""Where predictions are kept: in memory, or in a temporary file where memory would not do."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from burnish.core.errors import SettingError

Array = np.ndarray[Any, np.dtype[Any]]

logger = logging.getLogger(__name__)

CONTROL_GROUP = Path("/sys/fs/cgroup")
SHARE_OF_FREE_MEMORY = 0.5
"""What predictions may take of it: metrics make copies of them."""
BLOCK_BYTES = 2**25
"""From 32 MiB on, the allocator of glibc takes memory from the system directly, and gives it back so."""
ALIGNMENT = 64
TO_NEED_LESS = (
    "To need less: preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1) where classes are enough, "
    "metrics by name such as compute_metrics='accuracy' (they keep sums only), batch_eval_metrics=True, or "
    "prediction_loss_only=True."
)


def free_memory() -> int | None:
    """Bytes of the host's memory that can be had without swapping; within a control group what is left of its share.
    None where that cannot be found out."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")))
    with contextlib.suppress(OSError, ValueError):
        most = int((CONTROL_GROUP / "memory.max").read_text())
        stat = dict(line.split() for line in (CONTROL_GROUP / "memory.stat").read_text().splitlines())
        used = int((CONTROL_GROUP / "memory.current").read_text()) - int(stat["inactive_file"])
        found.append(max(0, most - used))
    return min(found, default=None)


class Room:
    """Decides from the first batch whether the predictions of all rows fit into memory, and says so if they do not.

    Args:
        rows: how many there will be; None where it is not known.
        folder: where a temporary file goes; the system's folder for these where it does not exist.
        most: bytes of memory that may be taken; by default half of what is free.
    """

    def __init__(self, rows: int | None = None, folder: str | Path | None = None, most: int | None = None) -> None:
        self._rows = rows
        there = folder is not None and Path(folder).is_dir()
        self._folder = str(folder) if there else tempfile.gettempdir()
        free = free_memory() if most is None else None
        self._most = most if free is None else int(free * SHARE_OF_FREE_MEMORY)

    def needs_disk(self, first_batch: list[Array], size: int) -> bool:
        """Whether all rows will take more than the memory, by the arrays of the first `size` rows. Raises
        `SettingError` where the disk would not do either."""
        if self._rows is None or self._most is None or not size:
            return False
        expected = sum(array.nbytes for array in first_batch) * max(self._rows, size) // size
        if expected <= self._most:
            return False
        shapes = ", ".join(f"{array.dtype} {array.shape[1:]}" for array in first_batch)
        said = (
            f"The predictions of {self._rows:,} rows ({shapes} each) take about {_size(expected)}, and "
            f"{_size(self._most)} of memory may be used for them"
        )
        free = shutil.disk_usage(self._folder).free
        if 2 * expected > free:  # as they come, and put together
            raise SettingError(
                f"{said}; {self._folder} has {_size(free)} left, of {_size(2 * expected)}. {TO_NEED_LESS}"
            )
        logger.warning("%s. They go to a temporary file in %s. %s", said, self._folder, TO_NEED_LESS)
        return True

    def is_full(self, held: int) -> bool:
        """Whether arrays of so many bytes are more than the memory that may be taken."""
        if self._most is None or held <= self._most:
            return False
        logger.warning(
            "Predictions have taken %s of memory, and go on in a temporary file in %s. %s",
            *(_size(held), self._folder, TO_NEED_LESS),
        )
        return True

    def file(self) -> InFile:
        """It is gone when it is closed, also by a crash."""
        return InFile(self._folder)

    def blank(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array of zeros in a file of its own, which is gone with the array."""
        if not prod(shape):
            return np.empty(shape, dtype)
        with tempfile.TemporaryFile(dir=self._folder) as file:  # the mapping keeps it
            return np.memmap(file, dtype, "w+", shape=shape)


class Kept:
    """An array that is kept somewhere, and read when it is asked for. Small: there is one for every batch."""

    __slots__ = ("_offset", "_source", "dtype", "nbytes", "shape")

    def __init__(self, array: Array, source: Any, offset: int) -> None:
        self.shape, self.dtype, self.nbytes = array.shape, array.dtype, array.nbytes
        self._source, self._offset = source, offset

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if isinstance(self._source, np.ndarray):
            content = self._source[self._offset : self._offset + self.nbytes].view(self.dtype)
        else:
            self._source.seek(self._offset)
            content = np.frombuffer(self._source.read(self.nbytes), self.dtype)
        array: Array = content.reshape(self.shape)
        return array if dtype is None else array.astype(dtype)


class InMemory:
    """Keeps arrays in large blocks of memory, which go back to the system as soon as nothing in them is wanted. A small
    array for every batch would leave holes between the large ones that the model makes, and memory would grow."""

    def __init__(self) -> None:
        self._block = np.empty(0, np.uint8)
        self._used = 0

    def put(self, array: Array) -> Any:
        """Keeps a copy, in the block that is being filled."""
        if array.dtype.hasobject:
            return array.copy()
        start = -(-self._used // ALIGNMENT) * ALIGNMENT
        if start + array.nbytes > len(self._block):
            self._block, start = np.empty(max(BLOCK_BYTES, array.nbytes), np.uint8), 0
        self._used = start + array.nbytes
        kept = Kept(array, self._block, start)
        np.asarray(kept)[...] = array
        return kept


class InFile:
    """Keeps arrays one after the other in a file without a name."""

    def __init__(self, folder: str) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def put(self, array: Array) -> Any:
        kept = Kept(array, self._file, self._file.seek(0, 2))
        self._file.write(np.ascontiguousarray(array).data)
        return kept

    def close(self) -> None:
        """Gives the disk its room back."""
        self._file.close()


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
