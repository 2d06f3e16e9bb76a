"""Packing: bins of a fixed number of tokens in place of single rows, so that every step has equal work.

A bin says which examples are in a step together, and nothing else: they stay examples of their own, with their own
positions, loss and attention, and are computed in micro-batches like any others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from burnish.core.errors import SettingError
from burnish.core.randomness import ORDER, seed_for

from .dataset_lengths import lengths_of
from .order import Order, Sequential, Shuffled
from .plan import Plan

LONGEST_BIN = 4096
"""Tokens of a bin at the most where no number is given: a few very long rows should not make all bins as long."""


@dataclass(frozen=True)
class Bins:
    """How rows of certain lengths fill bins.

    Args:
        lengths: of each row, in the order of the dataset.
        size: tokens of a bin.
        places: for each bin, which of the rows sorted by length are in it, the longest row being 0. Rows of one length
            may stand for each other.
    """

    lengths: Sequence[int]
    size: int
    places: list[list[int]]

    def __len__(self) -> int:
        return len(self.places)

    @property
    def filled(self) -> float:
        """Share of the bins' tokens that rows fill. A row longer than a bin fills its bin."""
        return sum(min(length, self.size) for length in self.lengths) / max(1, self.size * len(self.places))


def bins_of(dataset: Any, size: int | None, is_encoder_decoder: bool = False, length_column: str | None = None) -> Bins:
    """The rows of a dataset in bins.

    Args:
        size: tokens of a bin; None for those of the longest row, at most `LONGEST_BIN`. A longer row is a bin alone.
        length_column: a column of lengths, for rows that do not show theirs.

    Raises:
        SettingError: the lengths of the rows are not known before they are read.
    """
    lengths = lengths_of(dataset, is_encoder_decoder)
    if lengths is None and length_column is not None:
        lengths = lengths_of(dataset, length_column=length_column)
    if lengths is None:
        raise SettingError(
            "packing=True needs the length of every row before the first step; this train_dataset computes them when "
            "they are read, or has no `input_ids`. Tokenise it beforehand (dataset.map), give it a column of lengths "
            "(length_column_name), or set packing=False."
        )
    size = size or min(max(lengths, default=1), LONGEST_BIN)
    return Bins(lengths, max(1, size), best_fit(sorted(lengths, reverse=True), max(1, size)))


def best_fit(descending: Sequence[int], size: int) -> list[list[int]]:
    """Bins of places: each length goes where it leaves the least space, or into a new bin (best-fit decreasing, which
    needs at most 11/9 of the fewest bins possible and a few: Johnson et al., 1974, doi:10.1137/0203025). A length above
    `size` has a bin alone.

    Bins are found by their space left, of which there are at most `size`: in time (lengths × log size).
    """
    bins: list[list[int]] = []
    with_space: dict[int, list[int]] = {}  # space left, above 0, to bins
    spaces: list[int] = []  # its keys in order
    for place, length in enumerate(descending):
        at = bisect_left(spaces, length)
        if at == len(spaces):
            number, left = len(bins), size - length
            bins.append([])
        else:
            left = spaces[at] - length
            number = with_space[spaces[at]].pop()
            if not with_space[spaces[at]]:
                del with_space[spaces.pop(at)]
        bins[number].append(place)
        if left > 0:
            if left not in with_space:
                with_space[left] = []
                insort(spaces, left)
            with_space[left].append(number)
    return bins


@dataclass(frozen=True)
class PackedPlan:
    """The steps of a run over bins: a `Plan` in which a row of a batch is a bin.

    How many rows of which lengths share a bin is the same in every pass, and so is the number of steps. Which of the
    rows of one length it is, and the order of the bins, are drawn from (seed, pass).

    Args:
        bins: rows in bins.
        rows_first: the order in which rows of one length are taken.
        plan: the steps, in bins.
    """

    bins: Bins
    rows_first: Order
    plan: Plan
    _rows: dict[int, NDArray[np.int64]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls, bins: Bins, batch_size: int, accumulation: int, seed: int | None, drop_last: bool = False
    ) -> PackedPlan:
        """A plan in random order, or with None for a seed in that of the dataset.

        Args:
            batch_size: bins of a batch over all processes.
            accumulation: batches of a step.
        """
        num_rows, num_bins = len(bins.lengths), len(bins)
        if seed is None:
            rows_first: Order = Sequential(num_rows)
            first_row = [min(rows) for rows in _rows_in_bins(bins, np.arange(num_rows))]
            order: Order = Always(sorted(range(num_bins), key=first_row.__getitem__))
        else:
            rows_first, order = Shuffled(num_rows, seed), Shuffled(num_bins, seed_for(seed, ORDER, num_rows))
        return cls(bins, rows_first, Plan(num_bins, batch_size, accumulation, order, drop_last))

    @property
    def num_rows(self) -> int:
        return len(self.bins.lengths)

    @property
    def step_size(self) -> int:
        """Bins of a full step."""
        return self.plan.step_size

    @property
    def steps_per_epoch(self) -> int:
        return self.plan.steps_per_epoch

    def batches(self, epoch: int, step: int) -> list[list[int]]:
        """The row numbers of one step, batch by batch, those of a bin together.

        Raises:
            IndexError: the pass has no such step.
        """
        by_length = self._by_length(epoch)
        return [
            [int(by_length[place]) for number in batch for place in self.bins.places[number]]
            for batch in self.plan.batches(epoch, step)
        ]

    def rows(self, epoch: int, step: int) -> list[int]:
        """The row numbers of one step, in plan order."""
        return [row for batch in self.batches(epoch, step) for row in batch]

    def _by_length(self, epoch: int) -> NDArray[np.int64]:
        """The rows of a pass from the longest to the shortest; the last one made is kept."""
        if epoch not in self._rows:
            self._rows.clear()
            self._rows[epoch] = _sorted_by_length(self.bins, np.asarray(self.rows_first(epoch), dtype=np.int64))
        return self._rows[epoch]


@dataclass(frozen=True)
class Always:
    """The same order in every pass."""

    order: Sequence[int]

    def __call__(self, epoch: int) -> Sequence[int]:
        return self.order


def _sorted_by_length(bins: Bins, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same rows, the longest first; those of one length in the order they have."""
    lengths = np.asarray(bins.lengths, dtype=np.int64)[rows]
    return rows[np.argsort(-lengths, kind="stable")]


def _rows_in_bins(bins: Bins, rows: NDArray[np.int64]) -> list[list[int]]:
    by_length = _sorted_by_length(bins, rows).tolist()
    return [[by_length[place] for place in places] for places in bins.places]
