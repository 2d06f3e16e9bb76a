"""Reads rows of a dataset, and says which row could not be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from burnish.core.errors import DataError


def row_of(dataset: Any, number: int) -> Any:
    """Row `number` of a map-style dataset. Raises `DataError` naming it where the dataset cannot give it."""
    try:
        return dataset[number]
    except DataError:
        raise
    except Exception as error:
        raise _unreadable(number, error) from error


def rows_of(dataset: Any, numbers: Sequence[int]) -> list[Any]:
    """Some rows of a map-style dataset, in one call where it has `__getitems__`. Raises as `row_of`."""
    fetch = getattr(dataset, "__getitems__", None)
    if fetch is None:
        return [row_of(dataset, number) for number in numbers]
    try:
        return list(fetch(list(numbers)))
    except DataError:
        raise
    except Exception:
        for number in numbers:  # which of them it was
            row_of(dataset, number)
        raise


def next_of(rows: Iterator[Any], number: int) -> Any:
    """The next row of a stream. Raises `StopIteration` at its end, `DataError` where the stream breaks off."""
    try:
        return next(rows)
    except (StopIteration, DataError):
        raise
    except Exception as error:
        raise _unreadable(number, error) from error


def _unreadable(number: int, error: Exception) -> DataError:
    return DataError(f"Row {number} of the dataset could not be read ({type(error).__name__}: {error}).")
