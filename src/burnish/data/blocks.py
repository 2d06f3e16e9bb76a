"""The values of one column as a flat array, so that every value is checked fast.

rows      [[5, 6, 7], [8]]        in rows 10 and 11
values    5 6 7 8
lengths   3 1
owners    10 11                   the row of each sequence
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .arrow_arrays import as_numpy


@dataclass(frozen=True)
class Block:
    """The values of one column in some rows."""

    values: NDArray[Any]
    """Shape (values,): numbers, or objects where there is text or something else. Empty entries are 0 in numbers."""
    owners: NDArray[np.int64]
    """The row of each sequence, or of each value where rows hold single values."""
    lengths: NDArray[np.int64] | None
    """The length of each sequence (the innermost, of nested ones); None where rows hold single values."""
    empty: NDArray[np.bool_]
    """Shape (values,): True where the value is None."""
    missing: NDArray[np.int64]
    """Rows without a value."""

    @property
    def kind(self) -> str:
        """ "int", "float", "text", "other", or "nothing" where there is no value."""
        if len(self.values) == 0:
            return "nothing"
        if self.values.dtype.kind in "iub":
            return "int"
        if self.values.dtype.kind == "f":
            return "float"
        return "text" if any(isinstance(value, str) for value in self.values) else "other"

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each sequence begins in `values`."""
        assert self.lengths is not None
        return np.cumsum(self.lengths) - self.lengths

    def place(self, index: int) -> tuple[int, int | None]:
        """The row of a value, and its position in its sequence if it is in one."""
        if self.lengths is None:
            return int(self.owners[index]), None
        sequence = int(np.searchsorted(np.cumsum(self.lengths), index, side="right"))
        return int(self.owners[sequence]), int(index - self.starts[sequence])


def of_values(rows: Sequence[int], values: Sequence[Any]) -> Block:
    """A block of Python values: numbers, texts, lists, arrays, tensors."""
    missing = [row for row, value in zip(rows, values, strict=True) if value is None]
    owners, lengths, parts = [], [], []
    single = True
    for row, value in zip(rows, values, strict=True):
        for part in [] if value is None else _sequences(value):
            single = single and part.ndim == 0
            owners.append(row)
            lengths.append(part.size)
            parts.append(part.reshape(-1))
    flat = _joined(parts)
    empty = np.array([value is None for value in flat]) if flat.dtype == object else np.zeros(len(flat), dtype=bool)
    sizes = None if single else np.array(lengths, dtype=np.int64)
    return Block(flat, np.array(owners, dtype=np.int64), sizes, empty, np.array(missing, dtype=np.int64))


def _sequences(value: Any) -> list[NDArray[Any]]:
    """The innermost sequences of a value, or the value itself as an array without dimensions."""
    if isinstance(value, (list, tuple)) and any(_is_sequence(part) for part in value[:1]):
        return [sequence for part in value for sequence in _sequences(part)]
    array = _array(value)
    return [array] if array.ndim < 2 else list(array.reshape(-1, array.shape[-1]))


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0


def _array(value: Any) -> NDArray[Any]:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()  # numpy has no bfloat16
    if isinstance(value, (list, tuple)):
        array = np.asarray(value)
        return array if array.dtype.kind in _NUMERIC else _objects(value)  # texts would swallow numbers beside them
    if isinstance(value, (int, float, np.generic, np.ndarray)):
        array = np.asarray(value)
        return array if array.dtype.kind in _NUMERIC else array.astype(object)
    return _objects([value]).reshape(())


_NUMERIC = "iubf"


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    filled = [part for part in parts if part.size]
    if not filled:
        return np.empty(0, dtype=np.int64)
    if any(part.dtype == object for part in filled):
        return np.concatenate([part.astype(object) for part in filled])
    return np.concatenate(filled)


def of_arrow(rows: NDArray[np.int64], column: Any) -> Block:
    """A block of an Arrow column: numbers, texts, or lists of them to any depth."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    absent = as_numpy(array.is_null())
    owners, lengths = rows[~absent], None
    array = array.drop_null()
    while pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        if lengths is not None:
            owners = np.repeat(owners, lengths)
        counted = pc.list_value_length(array)
        lengths = as_numpy(counted.fill_null(0) if counted.null_count else counted).astype(np.int64)
        array = pc.list_flatten(array)
    empty = as_numpy(array.is_null())
    return Block(_numbers(array), owners, lengths, empty, rows[absent])


def _numbers(array: Any) -> NDArray[Any]:
    import pyarrow as pa

    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        array = array.fill_null(0) if array.null_count else array
        return as_numpy(array)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(array.to_pylist(), dtype=object)
    return np.full(len(array), None, dtype=object)  # pictures, audio, structs: not for these checks
