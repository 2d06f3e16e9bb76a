"""Steps of a dataset that can only be read in order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from burnish.core.randomness import EXAMPLE, seed_all, seed_for
from burnish.core.types import Step

from .assembly import Assembly, Rows
from .reading import next_of


class StepStream(IterableDataset[Step]):
    """One pass over an iterable dataset, from step `first` on, cut into steps as the rows come.

    The rows before are read and left out. Each row that draws at random gets the seed of its place in the pass, so
    that a pass resumed in the middle draws what the whole pass would have drawn. The last step may be smaller.
    """

    def __init__(
        self,
        dataset: IterableDataset[Any],
        batch_size: int,
        accumulation: int,
        assembly: Assembly,
        epoch: int,
        first: int,
        drop_last: bool = False,
    ) -> None:
        self.dataset, self.assembly = dataset, assembly
        self.batch_size, self.accumulation = batch_size, accumulation
        self.epoch, self.first, self.drop_last = epoch, first, drop_last

    def __iter__(self) -> Iterator[Step]:
        info = get_worker_info()
        assert info is None or info.num_workers == 1, "several workers would each read the whole stream"
        set_epoch = getattr(self.dataset, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(self.epoch)
        rows = numbered(self.dataset, self.assembly.seed, self.epoch)
        rows = islice(rows, self.first * self.batch_size * self.accumulation, None)
        index = self.first
        while batches := [batch for batch in (self._batch(rows) for _ in range(self.accumulation)) if batch]:
            yield self.assembly.step(self.epoch, index, batches)
            index += 1

    def _batch(self, rows: Iterator[tuple[int, Any]]) -> Rows:
        batch = list(islice(rows, self.batch_size))
        return [] if self.drop_last and len(batch) < self.batch_size else batch


def numbered(stream: Any, seed: int, epoch: int) -> Iterator[tuple[int, Any]]:
    """The rows of a stream with their numbers, each read with a seed of its own."""
    rows = iter(stream)
    for number in count():
        seed_all(seed_for(seed, EXAMPLE, epoch, number))
        try:
            example = next_of(rows, number)
        except StopIteration:
            return
        yield number, example
