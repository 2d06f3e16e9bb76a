"""Rows of an Arrow table, and of the tables of `datasets`, without importing that package where nobody else has."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from .arrow_arrays import of_numbers


class ArrowRows:
    """A map-style dataset of the rows of an Arrow table. The methods have the names of those of `datasets.Dataset`.

    The table of a file is mapped, not read: rows cost memory while they are looked at.
    """

    def __init__(self, table: Any) -> None:
        self.table = table
        """A `pyarrow.Table`."""
        self._batches = table.to_batches()
        self._ends = np.cumsum([len(batch) for batch in self._batches])

    @classmethod
    def from_file(cls, path: Path) -> ArrowRows:
        """Of a file in Arrow's own format (`write_file`)."""
        import pyarrow as pa

        return cls(pa.ipc.open_file(pa.memory_map(str(path))).read_all())

    @property
    def column_names(self) -> list[str]:
        return list(self.table.column_names)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: str) -> Column: ...
    def __getitem__(self, key: int | str) -> dict[str, Any] | Column:
        """A row by its number, or a column by its name."""
        if isinstance(key, str):
            return Column(self.table.column(key))
        number = key + len(self) if key < 0 else key
        if not 0 <= number < len(self):
            raise IndexError(f"there is no row {key} among {len(self)}")
        place = int(np.searchsorted(self._ends, number, side="right"))
        batch = self._batches[place]
        row: dict[str, Any] = batch.slice(number - int(self._ends[place]) + len(batch), 1).to_pylist()[0]
        return row

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        return [self[int(number)] for number in numbers]

    def select(self, numbers: Sequence[int]) -> ArrowRows:
        """Some rows, in this order. A run of rows is not copied."""
        if len(numbers) and list(numbers) == list(range(numbers[0], numbers[0] + len(numbers))):
            return ArrowRows(self.table.slice(numbers[0], len(numbers)))
        return ArrowRows(self.table.take(of_numbers(numbers, np.int64)))

    def select_columns(self, names: Sequence[str]) -> ArrowRows:
        return ArrowRows(self.table.select(list(names)))

    def remove_columns(self, names: Sequence[str]) -> ArrowRows:
        return ArrowRows(self.table.drop_columns(list(names)))

    def add_column(self, name: str, values: Any) -> ArrowRows:
        """With one more column, of an Arrow array."""
        return ArrowRows(self.table.append_column(name, values))

    def to_list(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table.to_pylist()
        return rows


class Column(Sequence[Any]):
    """The values of a column, read when they are asked for."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, slice):
            return self._values[key].as_py()
        numbers = range(len(self))[key]
        if numbers.step != 1:
            return list(self)[key]
        return self._values.slice(numbers.start, len(numbers)).to_pylist()

    def __iter__(self) -> Iterator[Any]:
        for chunk in self._values.chunks:
            yield from chunk.to_pylist()


def write_file(path: Path, batches: Iterable[Any]) -> None:
    """Writes Arrow record batches of one schema into a file, whole or not at all: aside first, then renamed."""
    import pyarrow as pa

    handle, aside = tempfile.mkstemp(prefix=".writing-", dir=path.parent)
    os.close(handle)
    try:
        remaining = iter(batches)
        first = next(remaining)
        with pa.ipc.new_file(aside, first.schema) as file:
            file.write_batch(first)
            for batch in remaining:
                file.write_batch(batch)
        os.replace(aside, path)
    finally:
        Path(aside).unlink(missing_ok=True)


def is_of_datasets(value: Any, *names: str) -> bool:
    """Whether a value is of one of these classes of the package `datasets`: never where the package is not loaded."""
    package = sys.modules.get("datasets")
    return package is not None and isinstance(value, tuple(getattr(package, name) for name in names))


def arrow_chunks(rows: Any, columns: Sequence[str], size: int) -> Iterator[Any]:
    """Some columns of `ArrowRows` or a `datasets.Dataset` as Arrow tables of `size` rows; the last has what is left."""
    if isinstance(rows, ArrowRows):
        table = rows.table.select(list(columns))
        yield from (table.slice(start, size) for start in range(0, len(rows), size))
    else:
        yield from rows.select_columns(list(columns)).with_format("arrow").iter(size)
