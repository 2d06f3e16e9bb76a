"""Which rows of a step each process computes: every row on one of them, and equal work for all."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

ROW_COST = 4
"""Positions that a row costs beside its tokens: what is computed once for each row. Of rows of no length at all, each
process gets as many."""

MANY_PARTS = 64
"""From where on parts are filled many at once: a thousand parts so take a quarter of the time, a few more."""

FULL = np.iinfo(np.int64).max // 2


@dataclass(frozen=True)
class Share:
    """One of `count` equal parts of a step.

    Args:
        index, count: number of the part, from 0, and how many there are.
        by_work: rows may go to any process, so that all have equal work. False where batches are computed whole: then
            every process has its part of each batch.
        same_number: every process gets the same number of rows, give or take one, since it computes no more than so
            many at once.
    """

    index: int = 0
    count: int = 1
    by_work: bool = True
    same_number: bool = False

    def of(self, batches: Sequence[Sequence[T]], length_of: Callable[[T], int | None] | None = None) -> list[list[T]]:
        """This part of the batches of a step, in their order; batches of which it has nothing are left out.

        Args:
            length_of: tokens of a row; None where they are not known, then every `count`-th row is its own.
        """
        if self.count == 1:
            return [list(batch) for batch in batches]
        rows = [row for batch in batches for row in batch]
        lengths = [length_of(row) for row in rows] if self.by_work and length_of is not None else [None]
        if any(length is None for length in lengths):
            own = [list(batch[self.index :: self.count]) for batch in batches]
        else:
            most = -(-len(rows) // self.count) if self.same_number else None
            mine = set(equal_work([length or 0 for length in lengths], self.count, most)[self.index])
            places = iter(range(len(rows)))
            own = [[row for row, place in zip(batch, places, strict=False) if place in mine] for batch in batches]
        return [batch for batch in own if batch]


def equal_work(lengths: Sequence[int], parts: int, most: int | None = None) -> list[list[int]]:
    """Row numbers in `parts` parts with nearly the same sum of lengths: each row, from the longest to the shortest,
    goes where there is the least so far (Graham, 1969, doi:10.1137/0117039: at most 4/3 of the best there is). Equal
    lengths always give equal parts.

    Args:
        most: rows of a part at the most; parts × most must be enough for all.
    """
    if parts >= MANY_PARTS:
        return _in_waves(np.asarray(lengths, dtype=np.int64), parts, most)
    found: list[list[int]] = [[] for _ in range(parts)]
    heap = [(0, part) for part in range(parts)]
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        work, part = heapq.heappop(heap)
        found[part].append(row)
        if most is None or len(found[part]) < most:
            heapq.heappush(heap, (work + lengths[row] + ROW_COST, part))
    return found


def _in_waves(lengths: NDArray[np.int64], parts: int, most: int | None) -> list[list[int]]:
    """The same parts, many rows at once: the next rows go to the parts that have the least, one to each, up to the
    first part that has more than one of those has by then."""
    rows = np.argsort(-lengths, kind="stable")
    given = (lengths[rows] + ROW_COST) * parts
    keys = np.arange(parts)  # of each part, work × parts + number: in the order in which parts are taken
    sizes, owner, done = np.zeros(parts, dtype=np.int64), np.empty(len(rows), dtype=np.int64), 0
    while done < len(rows):
        order = np.argsort(keys)[: len(rows) - done]
        before = keys[order]
        after = before + given[done : done + len(order)]
        beyond = np.flatnonzero(before[1:] > np.minimum.accumulate(after)[:-1])
        wave = int(beyond[0]) + 1 if len(beyond) else len(order)
        taken = order[:wave]
        owner[done : done + wave] = taken
        keys[taken] = after[:wave]
        sizes[taken] += 1
        if most is not None:
            keys[taken[sizes[taken] == most]] = FULL
        done += wave
    by_part = rows[np.argsort(owner, kind="stable")]
    return [part.tolist() for part in np.split(by_part, np.cumsum(sizes)[:-1])]
