"""Steps of a dataset that can only be read in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from burnish.core.processes import Alone
from burnish.core.protocols import Processes
from burnish.core.randomness import EXAMPLE, seed_all, seed_for
from burnish.core.types import Step

from .assembly import Assembly, Rows
from .lengths import real_length
from .reading import next_of
from .share import Share
from .stream_state import placed, state_of


class StepStream(IterableDataset[Step]):
    """One pass over an iterable dataset, from step `first` on, cut into steps as the rows come.

    The pass goes on from the state that the stream had before that step; without one, the rows before are read and
    left out. Each row that draws at random gets the seed of its place in the pass, so that a pass resumed in the middle
    draws what the whole pass would have drawn. The last step may be smaller.

    Every process reads the whole stream, and makes steps of its share; or the first one reads it for all.

    Args:
        batch_size: examples of a batch over all processes.
        state: of the stream before step `first` (see `stream_state`), or None.
        reader: the processes to whom the first of them hands the rows of each step; None where each reads for itself.
        parts: of how many this stream is one, each for a process: then `batch_size` is that of this one, the share is
            all of it, and its rows are numbered as every n-th.
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
        share: Share | None = None,
        state: Any = None,
        reader: Processes | None = None,
        parts: int = 1,
    ) -> None:
        self.dataset, self.assembly, self.share = dataset, assembly, share or Share()
        self.batch_size, self.accumulation = batch_size, accumulation
        self.epoch, self.first, self.drop_last = epoch, first, drop_last
        self.state, self.reader, self.parts = state, reader, parts

    def __iter__(self) -> Iterator[Step]:
        if self.reader is not None and self.reader.index > 0:
            yield from self._steps(iter(()))
            return
        info = get_worker_info()
        assert info is None or info.num_workers == 1, "several workers would each read the whole stream"
        set_epoch = getattr(self.dataset, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(self.epoch)
        before = self.first * self.batch_size * self.accumulation
        if self.state is None:
            yield from self._steps(islice(self._numbered(0), before, None))
            return
        with placed(self.dataset, self.state):
            yield from self._steps(self._numbered(before))

    def _numbered(self, first: int) -> Iterator[tuple[int, Any]]:
        place = self.assembly.process if self.parts > 1 else 0
        return numbered(self.dataset, self.assembly.seed, self.epoch, first * self.parts + place, self.parts)

    def _steps(self, rows: Iterator[tuple[int, Any]]) -> Iterator[Step]:
        index = self.first
        while True:
            batches, state = (self.reader or Alone()).from_first(lambda: self._read(rows))
            if not batches:
                return
            step = self.assembly.step(self.epoch, index, self.share.of(batches, self._length), batches[0][:1])
            yield replace(step, stream_state=state)
            index += 1

    def _read(self, rows: Iterator[tuple[int, Any]]) -> tuple[list[Rows], Any]:
        """The batches of the next step, none at the end, and the state of the stream after them."""
        batches = [batch for batch in (self._batch(rows) for _ in range(self.accumulation)) if batch]
        return batches, state_of(self.dataset) if self.parts == 1 else None  # a checkpoint has the state of one process

    def _length(self, row: tuple[int, Any]) -> int | None:
        return real_length(row[1], self.assembly.is_encoder_decoder)

    def _batch(self, rows: Iterator[tuple[int, Any]]) -> Rows:
        batch = list(islice(rows, self.batch_size))
        return [] if self.drop_last and len(batch) < self.batch_size else batch


def numbered(stream: Any, seed: int, epoch: int, first: int = 0, by: int = 1) -> Iterator[tuple[int, Any]]:
    """The rows of a stream with their numbers, from `first` on in steps of `by`, each read with a seed of its own."""
    rows = iter(stream)
    for number in count(first, by):
        seed_all(seed_for(seed, EXAMPLE, epoch, number))
        try:
            example = next_of(rows, number)
        except StopIteration:
            return
        yield number, example
