"""Batches of whole rows by number, for evaluation and for those who ask for a loader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from torch.utils.data import Dataset, IterableDataset

from burnish.core.types import Inputs, MicroBatch

from .assembly import Assembly, reading_draws
from .streaming import numbered


class OrderedBatches(Dataset[Inputs]):
    """Batches of a map-style dataset by number. What is drawn depends on the numbers of row and batch alone, so that
    every evaluation sees the same data."""

    def __init__(self, dataset: Any, row_numbers: list[list[int]], assembly: Assembly) -> None:
        self.dataset, self.row_numbers = dataset, row_numbers
        self.assembly = replace(assembly, examples_draw=reading_draws(dataset))

    def __len__(self) -> int:
        return len(self.row_numbers)

    def __getitem__(self, number: int) -> Inputs:
        return self.numbered(number).inputs

    def numbered(self, number: int) -> MicroBatch:
        """Batch `number` with the numbers of its rows."""
        rows = self.assembly.read(self.dataset, self.row_numbers[number], epoch=0)
        return self.assembly.micro_batch(rows, index=number)


class NumberedBatches(Dataset[MicroBatch]):
    """The same batches with the numbers of their rows."""

    def __init__(self, batches: OrderedBatches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> MicroBatch:
        return self.batches.numbered(number)


class StreamBatches(IterableDataset[Inputs]):
    """Batches of an iterable dataset as its rows come. Of `count` processes, number `index` has every `count`-th batch;
    it reads all of them."""

    def __init__(self, dataset: Any, batch_size: int, assembly: Assembly, index: int = 0, count: int = 1) -> None:
        self.dataset, self.batch_size, self.assembly = dataset, batch_size, assembly
        self.index, self.count = index, count

    def __iter__(self) -> Iterator[Inputs]:
        rows = numbered(self.dataset, self.assembly.seed, epoch=0)
        number = 0
        while batch := list(islice(rows, self.batch_size)):
            if number % self.count == self.index:
                yield self.assembly.micro_batch(batch, index=number).inputs
            number += 1


def in_order(num_rows: int, batch_size: int) -> list[list[int]]:
    """Row numbers 0, 1, … in batches."""
    return [list(range(i, min(i + batch_size, num_rows))) for i in range(0, num_rows, batch_size)]


def is_stream(dataset: Any) -> bool:
    """Whether a dataset can only be read in order."""
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")
