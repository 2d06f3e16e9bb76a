"""Checks over the values of a dataset: what is looked for, where it was found first, and how often."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .blocks import Block
from .table import Chunk

MOST_VALUES = 20
"""Distinct offending values that are remembered."""


@dataclass(frozen=True)
class Found:
    """The first fault of a kind, and how many rows have it."""

    row: int
    value: Any
    num_rows: int
    position: int | None = None
    """Where in the row's sequence, if it is one."""
    values: tuple[Any, ...] = ()
    """Distinct offending values, the first ones."""

    @property
    def where(self) -> str:
        return f"row {self.row}" + (f", position {self.position}" if self.position is not None else "")

    @property
    def more(self) -> str:
        """A closing sentence on further rows, or nothing."""
        rest = self.num_rows - 1
        return "" if rest == 0 else f" {rest:,} more {'row has' if rest == 1 else 'rows have'} the same fault."

    def and_also(self, later: Found | None) -> Found:
        """Joined with what was found in later rows."""
        if later is None:
            return self
        values = tuple(dict.fromkeys(self.values + later.values))[:MOST_VALUES]
        return replace(self, num_rows=self.num_rows + later.num_rows, values=values)


@dataclass(frozen=True)
class Check:
    """One kind of fault: how to find it in some rows, and what to say of it."""

    find: Callable[[Chunk], Found | None]
    say: Callable[[Found], str]


def first_fault(checks: Sequence[Check], chunks: Iterable[Chunk]) -> str | None:
    """Looks at every chunk once. What the first of the checks that found something says; None if all is well."""
    found: list[Found | None] = [None] * len(checks)
    for chunk in chunks:
        for i, check in enumerate(checks):
            new, old = check.find(chunk), found[i]
            found[i] = old.and_also(new) if old is not None else new
    return next((check.say(fault) for check, fault in zip(checks, found, strict=True) if fault is not None), None)


def of_column(column: str, find: Callable[[Block], Found | None]) -> Callable[[Chunk], Found | None]:
    """A finder that looks at one column, where the rows have it."""
    return lambda chunk: find(chunk[column]) if column in chunk else None


def faulty_values(block: Block, faulty: NDArray[np.bool_]) -> Found | None:
    """Where `faulty`, of shape (values,), is True."""
    at = np.flatnonzero(faulty)
    if not len(at):
        return None
    row, position = block.place(int(at[0]))
    owners = at if block.lengths is None else np.searchsorted(np.cumsum(block.lengths), at, side="right")
    some = block.values[at[:100_000]]
    distinct = list(dict.fromkeys(some.tolist())) if some.dtype == object else np.unique(some).tolist()
    value = block.values[at[0]]
    num_rows = len(np.unique(block.owners[owners]))
    return Found(row, getattr(value, "item", lambda: value)(), num_rows, position, tuple(distinct[:MOST_VALUES]))


def faulty_sequences(owners: NDArray[np.int64], sizes: NDArray[Any], faulty: NDArray[np.bool_]) -> Found | None:
    """Where `faulty`, of shape (sequences,), is True. The value is the sequence's entry in `sizes`."""
    at = np.flatnonzero(faulty)
    if not len(at):
        return None
    return Found(int(owners[at[0]]), int(sizes[at[0]]), len(np.unique(owners[at])))


def missing_rows(block: Block) -> Found | None:
    """Rows without a value, or with a None in their sequence."""
    inside = faulty_values(block, block.empty)
    if not len(block.missing):
        return inside
    first = Found(int(block.missing[0]), None, len(block.missing))
    return first.and_also(inside)
