"""What a model returns for the batches of an evaluation, gathered on the host as whole arrays in dataset order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from burnish.core.errors import DataError
from burnish.core.types import IGNORED_LABEL

from .room import InFile, InMemory, Kept, Room

Array = np.ndarray[Any, np.dtype[Any]]


class Collected(NamedTuple):
    """What a collector holds, to be merged elsewhere."""

    structure: Any
    columns: list[list[Array]]
    """For each array of the structure those of the batches."""
    rows: list[Sequence[int] | None]


class Collector:
    """Gathers nested outputs of batches: tensors, arrays and numbers in tuples, lists and mappings.

    Batches are copied to the host as they come and put together once, in `result`, which lets go of each as it does so:
    time and memory grow with what is gathered and no faster. Where memory would not do, a temporary file holds it all.

    Args:
        padding: what arrays of unequal length are padded with.
        room: how much there is; by default as much as is asked for.
        batches_on_device: how many batches of an accelerator are kept there before they are copied together.
    """

    def __init__(self, padding: int = IGNORED_LABEL, room: Room | None = None, batches_on_device: int = 1) -> None:
        self._padding, self._room = padding, room
        self._batches_on_device, self._on_device = batches_on_device, list[tuple[Any, Sequence[int] | None]]()
        self._structure: Any = None
        self._columns: list[list[Array | Kept]] = []
        self._rows: list[Sequence[int] | None] = []
        self._sizes: list[int] = []
        self._store: InMemory | InFile = InMemory()
        self._in_memory = 0

    def add(self, batch_outputs: Any, rows: Sequence[int] | None = None) -> None:
        """Adds what came out for one batch.

        Args:
            batch_outputs: the same structure in every batch. Arrays have shape (batch, ...); a scalar stands for its
                batch and becomes one entry. bfloat16 becomes float32, other dtypes stay. None stays None.
            rows: number in the dataset of each example of the batch; -1 or None where it is not known.

        Raises:
            DataError: the structure, or the number of dimensions of an array, differs from the batches before.
            SettingError: neither memory nor disk will hold all rows.
        """
        self._on_device.append((batch_outputs, rows))
        if len(self._on_device) >= self._batches_on_device or not _is_elsewhere(batch_outputs):
            self._fetch()

    def _fetch(self) -> None:
        """Copies to the host what was left on the device."""
        waiting, self._on_device = self._on_device, []
        for outputs, rows in waiting:
            arrays: list[Array] = []
            self._take(_take_apart(outputs, arrays), arrays, rows)

    def _take(self, structure: Any, arrays: list[Array], rows: Sequence[int] | None) -> None:
        size = len(rows) if rows is not None else max(map(len, arrays), default=0)
        if not self._rows:
            self._structure, self._columns = structure, [[] for _ in arrays]
            if self._room is not None and self._room.needs_disk(arrays, size):
                self._store = self._room.file()
        elif structure != self._structure:
            raise DataError(
                f"Batch {len(self._rows)} of the evaluation gave {structure}, and those before it {self._structure} "
                "(numbers are the dimensions of arrays): return the same for every batch."
            )
        for column, array in zip(self._columns, arrays, strict=True):
            column.append(self._store.put(array))
        self._rows.append(rows)
        self._sizes.append(size)
        if isinstance(self._store, InMemory) and self._room is not None:
            self._in_memory += sum(array.nbytes for array in arrays)
            if self._room.is_full(self._in_memory):
                self._move(self._room.file())

    def _move(self, file: InFile) -> None:
        """Into a file, where all that follows goes, too."""
        for column in self._columns:
            column[:] = [file.put(np.asarray(array)) for array in column]
        self._store = file

    def state(self) -> Collected:
        """All batches so far, as arrays."""
        self._fetch()
        columns = [list(map(np.asarray, column)) for column in self._columns]
        return Collected(self._structure, columns, self._rows)

    def merge(self, states: Iterable[Collected]) -> None:
        """Adds the batches that were gathered elsewhere, such as in other processes. Raises as `add` does."""
        for structure, columns, rows in states:
            for place, of_batch in enumerate(rows):
                self._take(structure, [column[place] for column in columns], of_batch)

    @property
    def count(self) -> int:
        """Examples gathered; one that came twice, by its row, counts once."""
        self._fetch()
        return self._places()[1]

    def result(self) -> Any:
        """The structure of the batches, with one array in place of each tensor; None where nothing was added.

        Arrays of unequal length are padded on the right of every dimension after the first. Where all rows
        are known, entries are in the order of the dataset, and an example that came twice is kept once; else they are
        in the order of their batches. An array with k entries an example keeps these together. Arrays that do not
        have a fixed number of entries an example (such as one scalar a batch) stay in the order of the batches.

        Called once: afterwards the collector is empty. Large arrays are backed by a file where memory would not do.
        """
        self._fetch()
        places, count = self._places()
        in_file = isinstance(self._store, InFile)
        blank = self._room.blank if in_file and self._room is not None else np.empty
        joined = (_join(column, places, count, self._sizes, self._padding, blank) for column in self._columns)
        found = _put_together(self._structure, joined)
        if isinstance(self._store, InFile):
            self._store.close()
        self._columns, self._store = [], InMemory()
        return found

    def _places(self) -> tuple[Array, int]:
        """The place in the result of each example that was added, -1 for a repeated one; and the size of the result."""
        total = sum(self._sizes)
        rows = [row for batch in self._rows for row in (batch if batch is not None else (-1,))]
        if not rows or min(rows) < 0:
            return np.arange(total), total
        first_seen = np.unique(np.asarray(rows), return_index=True)[1]
        places = np.full(total, -1)
        places[first_seen] = np.arange(len(first_seen))
        return places, len(first_seen)


def _take_apart(nested: Any, arrays: list[Array]) -> Any:
    """Appends the arrays of `nested`, on the host, and returns its structure: dimensions in place of arrays."""
    if nested is None:
        return None
    if isinstance(nested, Mapping):
        # Equal mappings may differ in their order, and the arrays are told apart by theirs.
        return {key: _take_apart(nested[key], arrays) for key in sorted(nested, key=str)}
    if isinstance(nested, (tuple, list)):
        parts = [_take_apart(value, arrays) for value in nested]
        return parts if isinstance(nested, list) else tuple(parts)
    arrays.append(np.atleast_1d(as_array(nested)))
    return arrays[-1].ndim


def _put_together(structure: Any, arrays: Iterator[Array]) -> Any:
    if structure is None:
        return None
    if isinstance(structure, dict):
        return {key: _put_together(value, arrays) for key, value in structure.items()}
    if isinstance(structure, (tuple, list)):
        return type(structure)(_put_together(value, arrays) for value in structure)
    return next(arrays)


def as_array(value: Any) -> Array:
    """On the host; bfloat16, which numpy does not have, becomes float32."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    array: Array = value.detach().to("cpu", torch.float32 if value.dtype == torch.bfloat16 else value.dtype).numpy()
    return array


def _is_elsewhere(nested: Any) -> bool:
    """Whether there are tensors that are not in the host's memory."""
    if isinstance(nested, Mapping):
        nested = tuple(nested.values())
    if isinstance(nested, (tuple, list)):
        return any(map(_is_elsewhere, nested))
    return isinstance(nested, torch.Tensor) and nested.device.type != "cpu"


def _join(
    arrays: list[Array | Kept],
    places: Array,
    count: int,
    batch_sizes: list[int],
    padding: int,
    blank: Callable[[tuple[int, ...], np.dtype[Any]], Array],
) -> Array:
    """One array of all entries, (entries, ...), those of each example at its place. Empties `arrays` on the way, so
    that nothing is held twice."""
    entries = sum(map(len, arrays))
    each = entries // max(1, len(places))
    if [len(array) for array in arrays] != [each * size for size in batch_sizes]:
        places, count, each = np.arange(entries), entries, 1
    places = np.where(places[:, None] < 0, -1, places[:, None] * each + np.arange(each)).ravel()
    shape, dtype, is_ragged = _common(arrays)
    joined = blank((count * each, *shape), dtype)
    arrays.reverse()
    start = 0
    while arrays:
        array = arrays.pop()
        where = places[start : start + len(array)]
        start += len(array)
        kept = where >= 0
        if is_ragged:
            joined[where[kept]] = padding
        region: tuple[Any, ...] = (where[kept], *map(slice, array.shape[1:]))
        joined[region] = np.asarray(array)[kept]
    return joined


def _common(arrays: Sequence[Array | Kept]) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """The shape and type of an entry that takes all of them, and whether some need padding."""
    shapes = {array.shape[1:] for array in arrays}
    shape = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    dtype = np.result_type(*(array.dtype for array in arrays))
    if len(shapes) > 1 and dtype.kind in "bu":
        dtype = np.result_type(dtype, np.int8)  # the padding may be negative
    return shape, dtype, len(shapes) > 1
