"""Columns of a dataset, a chunk of rows at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from burnish.core.randomness import kept

from .arrow_rows import ArrowRows, arrow_chunks, is_of_datasets
from .blocks import Block, of_arrow, of_values
from .reading import row_of

CHUNK = 10_000
"""Rows read at a time."""
MOST_ROWS = 20_000
"""Rows looked at in a dataset that computes its rows; of a longer one, this many, evenly spread."""
MOST_SECONDS = 5.0
"""Time spent on a dataset that computes its rows."""


Chunk = Mapping[str, Block]
"""Some rows, by column. A column that none of the rows has is not in it."""


def is_table(dataset: Any) -> bool:
    """Whether the dataset is an Arrow table whose rows are read as they are, without a transform."""
    if isinstance(dataset, ArrowRows):
        return True
    return is_of_datasets(dataset, "Dataset") and dataset.format["type"] != "custom"


def is_at_hand(dataset: Any) -> bool:
    """Whether rows cost nothing to read: a list, or a table. Other datasets may compute each of them."""
    return isinstance(dataset, (list, tuple)) or is_table(dataset)


def column_names(dataset: Any) -> list[str] | None:
    """The columns of the rows; of a dataset that computes them, those of row 0. None where they are not known: rows
    whose values have no names, and streams that do not say."""
    if is_table(dataset) or is_of_datasets(dataset, "IterableDataset"):
        return dataset.column_names  # type: ignore[no-any-return]
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        return None
    row = first_row(dataset)
    return list(row) if row else None


def first_row(dataset: Any) -> Mapping[str, Any]:
    """Row 0 of a map-style dataset by column; empty where its values have no names."""
    with kept():
        plain = is_of_datasets(dataset, "Dataset") and is_table(dataset)
        return as_names(dataset.with_format(None)[0] if plain else row_of(dataset, 0)) or {}


def as_names(row: Any) -> Mapping[str, Any] | None:
    """A row by column, or None where its values have no names."""
    if isinstance(row, Mapping):
        return row
    if hasattr(row, "_asdict"):
        return dict(row._asdict())
    return getattr(row, "__dict__", None)


def chunks(dataset: Any, columns: Sequence[str]) -> Iterator[Chunk]:
    """The columns of a map-style dataset. Tables and lists are read whole; of a dataset that computes its rows, at
    most `MOST_ROWS` rows and `MOST_SECONDS`, since each may cost much. Random states are left as they were found."""
    if is_table(dataset):
        start = 0
        for part in arrow_chunks(dataset, [c for c in columns if c in dataset.column_names], CHUNK):
            rows = np.arange(start, start + len(part))
            start += len(part)
            yield {name: of_arrow(rows, part.column(name)) for name in part.column_names}
    else:
        yield from _chunks_of_rows(dataset, columns)


def _chunks_of_rows(dataset: Any, columns: Sequence[str]) -> Iterator[Chunk]:
    computed = not is_at_hand(dataset)
    total = len(dataset)
    numbers = spread(total, MOST_ROWS) if computed else np.arange(total)
    deadline = time.monotonic() + MOST_SECONDS
    for start in range(0, len(numbers), CHUNK):
        taken = []
        with kept():
            for number in numbers[start : start + CHUNK].tolist():
                taken.append((number, as_names(row_of(dataset, number)) or {}))
                if computed and time.monotonic() > deadline:
                    break
        yield chunk_of(taken, columns)
        if computed and time.monotonic() > deadline:
            return


def chunk_of(rows: Sequence[tuple[int, Mapping[str, Any]]], columns: Sequence[str]) -> Chunk:
    """These columns of some rows, given with their numbers."""
    return {name: of_values(*_column(rows, name)) for name in columns if any(name in row for _, row in rows)}


def spread(total: int, most: int) -> NDArray[np.int64]:
    """At most `most` of `total` row numbers, evenly spread, in order."""
    return np.unique(np.linspace(0, total - 1, min(total, most)).round().astype(np.int64))


def _column(rows: Sequence[tuple[int, Mapping[str, Any]]], name: str) -> tuple[list[int], list[Any]]:
    return [number for number, _ in rows], [row.get(name) for _, row in rows]
