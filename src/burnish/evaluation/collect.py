"""What a model returns for the batches of an evaluation, gathered on the host as whole arrays in dataset order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from burnish.core.errors import DataError
from burnish.core.types import IGNORED_LABEL

Array = np.ndarray[Any, np.dtype[Any]]


class Collector:
    """Gathers nested outputs of batches: tensors, arrays and numbers in tuples, lists and mappings.

    Batches are copied to the host as they come and put together once, in `result`, so that time and memory grow with
    what is gathered and no faster; while `result` runs, one array at a time is held twice.

    Args:
        padding: what arrays of unequal length are padded with.
    """

    def __init__(self, padding: int = IGNORED_LABEL) -> None:
        self._padding = padding
        self._structure: Any = None
        self._columns: list[list[Array]] = []
        self._rows: list[Sequence[int] | None] = []

    def add(self, batch_outputs: Any, rows: Sequence[int] | None = None) -> None:
        """Adds what came out for one batch.

        Args:
            batch_outputs: the same structure in every batch. Arrays have shape (batch, ...); a scalar stands for its
                batch and becomes one entry. bfloat16 becomes float32, other dtypes stay. None stays None.
            rows: number in the dataset of each example of the batch; -1 or None where it is not known.

        Raises:
            DataError: the structure, or the number of dimensions of an array, differs from the batches before.
        """
        arrays: list[Array] = []
        structure = _take_apart(batch_outputs, arrays)
        if not self._rows:
            self._structure, self._columns = structure, [[] for _ in arrays]
        elif structure != self._structure:
            raise DataError(
                f"Batch {len(self._rows)} of the evaluation gave {structure}, and those before it {self._structure} "
                "(numbers are the dimensions of arrays): return the same for every batch."
            )
        for column, array in zip(self._columns, arrays, strict=True):
            column.append(array)
        self._rows.append(rows)

    @property
    def count(self) -> int:
        """Examples gathered; one that came twice, by its row, counts once."""
        return self._places()[1]

    def result(self) -> Any:
        """The structure of the batches, with one array in place of each tensor; None where nothing was added.

        Arrays of unequal length are padded on the right of every dimension after the first. Where all rows
        are known, entries are in the order of the dataset, and an example that came twice is kept once; else they are
        in the order of their batches. An array with k entries an example keeps these together. Arrays that do not
        have a fixed number of entries an example (such as one scalar a batch) stay in the order of the batches.
        """
        places, count = self._places()
        sizes = self._batch_sizes()
        joined = (_join(column, places, count, sizes, self._padding) for column in self._columns)
        return _put_together(self._structure, joined)

    def _batch_sizes(self) -> list[int]:
        """Examples of each batch: its rows, else the longest first dimension of its arrays."""
        return [
            len(rows) if rows is not None else max((len(column[batch]) for column in self._columns), default=0)
            for batch, rows in enumerate(self._rows)
        ]

    def _places(self) -> tuple[Array, int]:
        """The place in the result of each example that was added, -1 for a repeated one; and the size of the result."""
        total = sum(self._batch_sizes())
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
    arrays.append(np.atleast_1d(_on_host(nested)))
    return arrays[-1].ndim


def _put_together(structure: Any, arrays: Iterator[Array]) -> Any:
    if structure is None:
        return None
    if isinstance(structure, dict):
        return {key: _put_together(value, arrays) for key, value in structure.items()}
    if isinstance(structure, (tuple, list)):
        return type(structure)(_put_together(value, arrays) for value in structure)
    return next(arrays)


def _on_host(value: Any) -> Array:
    """A copy of its own: a view would keep alive, or follow, the larger tensor that it is part of."""
    if not isinstance(value, torch.Tensor):
        return np.array(value)
    dtype = torch.float32 if value.dtype == torch.bfloat16 else value.dtype
    array: Array = value.detach().to("cpu", dtype, copy=True).numpy()
    return array


def _join(arrays: list[Array], places: Array, count: int, batch_sizes: list[int], padding: int) -> Array:
    """One array of all entries, (entries, ...), those of each example at its place."""
    entries = sum(map(len, arrays))
    each = entries // max(1, len(places))
    if [len(array) for array in arrays] != [each * size for size in batch_sizes]:
        places, count, each = np.arange(entries), entries, 1
    places = np.where(places[:, None] < 0, -1, places[:, None] * each + np.arange(each)).ravel()
    joined = _blank(arrays, count * each, padding)
    start = 0
    for array in arrays:
        where = places[start : start + len(array)]
        start += len(array)
        kept = where >= 0
        region: tuple[Any, ...] = (where[kept], *map(slice, array.shape[1:]))
        joined[region] = array[kept]
    return joined


def _blank(arrays: list[Array], entries: int, padding: int) -> Array:
    """Room for these arrays one below the other, filled with the padding where their shapes differ."""
    shapes = {array.shape[1:] for array in arrays}
    shape = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    dtype = np.result_type(*(array.dtype for array in arrays))
    if len(shapes) == 1:
        return np.empty((entries, *shape), dtype)
    if dtype.kind in "bu":
        dtype = np.result_type(dtype, np.int8)  # the padding may be negative
    return np.full((entries, *shape), padding, dtype)
