"""The order of the rows in a pass: a function of the pass, with no state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from burnish.core.randomness import ORDER, generator_for

Order = Callable[[int], Sequence[int]]
"""Pass number, counted from 0, to the row numbers in the order in which they are used."""

MEGA_BATCH = 50
"""Batches that are shuffled together before rows are grouped by length, as in the usual samplers."""


@dataclass(frozen=True)
class Sequential:
    """The rows as they stand, in every pass."""

    num_rows: int

    def __call__(self, epoch: int) -> Sequence[int]:
        return range(self.num_rows)


@dataclass(frozen=True)
class Shuffled:
    """A permutation drawn from (seed, pass)."""

    num_rows: int
    seed: int

    def __call__(self, epoch: int) -> Sequence[int]:
        drawn: list[int] = torch.randperm(self.num_rows, generator=generator_for(self.seed, ORDER, epoch)).tolist()
        return drawn


@dataclass(frozen=True)
class GroupedByLength:
    """Shuffled, then rows of like length brought together within groups of `MEGA_BATCH` steps; the longest row of
    all comes first, so that a step too large for the memory fails at once."""

    lengths: Sequence[int]
    step_size: int
    seed: int

    def __call__(self, epoch: int) -> Sequence[int]:
        rows = Shuffled(len(self.lengths), self.seed)(epoch)
        size = MEGA_BATCH * self.step_size
        groups = [sorted(rows[i : i + size], key=self._longest_first) for i in range(0, len(rows), size)]
        if groups:
            longest = max(range(len(groups)), key=lambda g: self.lengths[groups[g][0]])
            groups[0][0], groups[longest][0] = groups[longest][0], groups[0][0]
        return [row for group in groups for row in group]

    def _longest_first(self, row: int) -> int:
        return -self.lengths[row]
