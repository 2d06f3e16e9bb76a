"""Which rows of a step each process computes: every row on one of them, and equal work for all."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

ROW_COST = 4
"""Positions that a row costs beside its tokens: what is computed once for each row. Of rows of no length at all, each
process gets as many."""


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
    found: list[list[int]] = [[] for _ in range(parts)]
    heap = [(0, part) for part in range(parts)]
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        work, part = heapq.heappop(heap)
        found[part].append(row)
        if most is None or len(found[part]) < most:
            heapq.heappush(heap, (work + lengths[row] + ROW_COST, part))
    return found
