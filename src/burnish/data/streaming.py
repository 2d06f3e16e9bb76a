"""Steps of a dataset that can only be read in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
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
from .stream_order import as_in_the_main_process
from .stream_parts import own_parts, part_of, share_within
from .stream_state import placed, state_of


class StepStream(IterableDataset[Step]):
    """One pass over an iterable dataset, from step `first` on, cut into steps as the rows come.

    The pass goes on from the state that the stream had before that step; without one, the rows before are read and
    left out. Each row that draws at random gets the seed of its place in the pass, so that a pass resumed in the middle
    draws what the whole pass would have drawn. The last step may be smaller.

    Every process reads the whole stream, and makes steps of its share; or the first one reads it for all; or the stream
    has parts (see `stream_parts`). Then a step has as many rows of each part, while they last, and a process reads only
    parts of which it has rows.

    Args:
        batch_size: examples of a batch over all processes.
        share: of each step, which this process has among all.
        state: of the stream before step `first` (see `stream_state`), or None; with parts, of each by its number.
        reader: the processes to whom the first of them hands the rows of each step; None where each reads for itself.
        parts: in how many the stream is read.
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
        of_all = share or Share()
        self.assembly, self.share, self.drop_last = assembly, share_within(of_all, parts), drop_last
        self.epoch, self.first, self.reader, self.parts = epoch, first, reader, parts
        self.numbers = own_parts(of_all, parts)
        self.streams = [part_of(dataset, number, parts) for number in self.numbers]
        states = state if parts > 1 else {"0": state}
        self.states = [(states or {}).get(str(number)) for number in self.numbers]
        self.batch_size, self.rows_of_part = batch_size // min(parts, of_all.count), batch_size * accumulation // parts

    def __iter__(self) -> Iterator[Step]:
        if self.reader is not None and self.reader.index > 0:
            yield from self._steps([])
            return
        info = get_worker_info()
        assert info is None or info.num_workers == 1, "several workers would each read the whole stream"
        for stream in self.streams:
            set_epoch = getattr(stream, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(self.epoch)
        with ExitStack() as places:
            yield from self._steps([self._rows(at, places) for at in range(len(self.streams))])

    def _rows(self, at: int, places: ExitStack) -> Iterator[tuple[int, Any]]:
        """What is left of a part, with the numbers of its rows among those of all parts."""
        stream, number, before = self.streams[at], self.numbers[at], self.first * self.rows_of_part
        if self.states[at] is None:
            return islice(numbered(stream, self.assembly.seed, self.epoch, number, self.parts), before, None)
        places.enter_context(placed(stream, self.states[at]))
        return numbered(stream, self.assembly.seed, self.epoch, before * self.parts + number, self.parts)

    def _steps(self, rows: list[Iterator[tuple[int, Any]]]) -> Iterator[Step]:
        index = self.first
        while True:
            batches, state = (self.reader or Alone()).from_first(lambda: self._read(rows))
            if not batches:
                return
            step = self.assembly.step(self.epoch, index, self.share.of(batches, self._length), batches[0][:1])
            yield replace(step, stream_state=state)
            index += 1

    def _read(self, rows: list[Iterator[tuple[int, Any]]]) -> tuple[list[Rows], Any]:
        """The batches of the next step, none at the end, and the state of the stream after them."""
        read = [row for part in rows for row in islice(part, self.rows_of_part)]
        batches = [read[i : i + self.batch_size] for i in range(0, len(read), self.batch_size)]
        if self.drop_last and batches and len(batches[-1]) < self.batch_size:
            batches.pop()
        states = {str(number): state_of(stream) for number, stream in zip(self.numbers, self.streams, strict=True)}
        return batches, states if self.parts > 1 else states["0"]

    def _length(self, row: tuple[int, Any]) -> int | None:
        return real_length(row[1], self.assembly.is_encoder_decoder)


def numbered(stream: Any, seed: int, epoch: int, first: int = 0, by: int = 1) -> Iterator[tuple[int, Any]]:
    """The rows of a stream with their numbers, from `first` on in steps of `by`, each read with a seed of its own."""
    with as_in_the_main_process(stream):
        rows = iter(stream)
        for number in count(first, by):
            seed_all(seed_for(seed, EXAMPLE, epoch, number))
            try:
                example = next_of(rows, number)
            except StopIteration:
                return
            yield number, example
