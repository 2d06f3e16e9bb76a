"""Where steps come from: a planned dataset, a stream, or the loader of a user."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from burnish.core.processes import Alone
from burnish.core.protocols import Processes
from burnish.core.randomness import COLLATION, ORDER, seed_all, seed_for
from burnish.core.types import MicroBatch, Step

from .assembly import Assembly, Rows, as_inputs
from .counting import num_positions, num_rows
from .loaders import SharedLoader
from .packing import PackedPlan
from .plan import Plan
from .share import Share
from .streaming import StepStream

T = TypeVar("T")


@dataclass(frozen=True)
class Loading:
    """How steps are prepared beside the training.

    Args:
        num_workers: processes that prepare steps ahead; 0 prepares them in the main process.
        prefetch_factor: steps that each worker keeps ready, or None for torch's default.
        persistent: keep the workers from one pass to the next.
        pin_memory: hand over tensors in page-locked memory.
        context: how workers are started ("fork", "spawn", "forkserver"), or None.
    """

    num_workers: int = 0
    prefetch_factor: int | None = None
    persistent: bool = False
    pin_memory: bool = False
    context: str | None = None

    def loader(self, items: Dataset[T], sampler: Any = None, most_workers: int | None = None) -> DataLoader[T]:
        """A loader of items that come ready: steps, or batches."""
        workers = self.num_workers if most_workers is None else min(self.num_workers, most_workers)
        return DataLoader(
            items,
            batch_size=None,
            sampler=sampler,
            collate_fn=_unchanged,  # without a batch size it gets the item itself
            num_workers=workers,
            prefetch_factor=self.prefetch_factor if workers else None,
            persistent_workers=self.persistent and workers > 0,
            pin_memory=self.pin_memory,
            multiprocessing_context=self.context if workers else None,
            # a generator of its own: the loader draws a seed for its workers, which must not come from the caller's
            generator=torch.Generator(),
        )


def _unchanged(item: Any) -> Any:
    return item


class _PlannedSteps(Dataset[Step]):
    """Steps by (pass, step). Reading one depends on nothing that was read before."""

    def __init__(
        self, dataset: Any, plan: Plan | PackedPlan, assembly: Assembly, share: Share, lengths: Sequence[int] | None
    ) -> None:
        self.dataset, self.plan, self.assembly = dataset, plan, assembly
        self.share, self.lengths = share, lengths

    def __getitem__(self, place: tuple[int, int]) -> Step:
        epoch, index = place
        of_all = self.plan.batches(epoch, index)
        batches = self.share.of(of_all, None if self.lengths is None else self.lengths.__getitem__)
        rows = iter(self.assembly.read(self.dataset, [row for batch in batches for row in batch], epoch))
        stand_in = None if batches else self.assembly.read(self.dataset, of_all[0][:1], epoch)
        return self.assembly.step(epoch, index, [[next(rows) for _ in batch] for batch in batches], stand_in)


class _Places:
    """The places (pass, step) that are wanted next; set before each pass."""

    def __init__(self) -> None:
        self.epoch, self.steps = 0, range(0)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return ((self.epoch, index) for index in self.steps)

    def __len__(self) -> int:
        return len(self.steps)


class PlannedSource:
    """Steps of a map-style dataset in the order of its plan. Resuming reads nothing of what came before, and a process
    reads its share of a step alone.

    Args:
        lengths: of each row, where they are known before it is read.
    """

    def __init__(
        self,
        dataset: Any,
        plan: Plan | PackedPlan,
        assembly: Assembly,
        loading: Loading,
        share: Share | None = None,
        lengths: Sequence[int] | None = None,
    ) -> None:
        self.dataset, self.plan, self.assembly, self.loading = dataset, plan, assembly, loading
        self.share, self.lengths = share or Share(), lengths
        self._places = _Places()
        self._loader = loading.loader(_PlannedSteps(dataset, plan, assembly, self.share, lengths), sampler=self._places)

    def changed(self, plan: Plan | PackedPlan | None = None, assembly: Assembly | None = None) -> PlannedSource:
        """The same source with another plan, or other micro-batches."""
        assembly = assembly or self.assembly
        share = replace(self.share, by_work=assembly.budget is not None)
        return PlannedSource(self.dataset, plan or self.plan, assembly, self.loading, share, self.lengths)

    @property
    def steps_per_epoch(self) -> int | None:
        return self.plan.steps_per_epoch

    def steps(self, epoch: int, first: int) -> Iterator[Step]:
        self._places.epoch, self._places.steps = epoch, range(first, self.plan.steps_per_epoch)
        return iter(self._loader)


@dataclass
class StreamSource:
    """Steps of an iterable dataset, as its rows come. One worker at most reads it, so that the order is kept."""

    dataset: IterableDataset[Any]
    batch_size: int
    accumulation: int
    assembly: Assembly
    loading: Loading
    drop_last: bool = False
    steps_per_epoch: int | None = None
    share: Share = field(default_factory=Share)
    saved: tuple[tuple[int, int], Any] | None = None
    """A place (pass, step) and the state of the stream there; with parts, of each by its number."""
    reader: Processes | None = None
    """The processes for whom the first of them reads; None where each reads for itself."""
    parts: int = 1
    """In how many the stream is read, each for itself (see `stream_parts`)."""

    def steps(self, epoch: int, first: int) -> Iterator[Step]:
        share = replace(self.share, by_work=self.assembly.budget is not None)
        state = self.saved[1] if self.saved is not None and self.saved[0] == (epoch, first) else None
        stream = StepStream(
            self.dataset, self.batch_size, self.accumulation, self.assembly, epoch, first, self.drop_last, share, state,
            self.reader, self.parts,
        )  # fmt: skip
        return iter(self.loading.loader(stream, most_workers=1 if self.reader is None else 0))


@dataclass
class LoaderSource:
    """Steps of a user's own loader: its batches as they are, `accumulation` of them a step on each process."""

    build: Callable[[], Any]
    accumulation: int
    assembly: Assembly
    processes: Processes = field(default_factory=Alone)
    _loader: SharedLoader | None = field(default=None, repr=False)

    @property
    def loader(self) -> SharedLoader:
        if self._loader is None:
            if self.processes.count > 1:  # what is drawn while it is made is the same on all of them
                seed_all(seed_for(self.assembly.seed, ORDER, 0))
            self._loader = SharedLoader(self.build(), self.processes)
        return self._loader

    @property
    def steps_per_epoch(self) -> int | None:
        rounds = self.loader.num_rounds
        return None if rounds is None else -(-rounds // self.accumulation)

    def steps(self, epoch: int, first: int) -> Iterator[Step]:
        own = self.loader.loader
        for owner in (own, getattr(own, "sampler", None), getattr(own, "dataset", None)):
            set_epoch = getattr(owner, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)
        step = _LoaderStep(self.assembly, epoch)
        for read in self._rounds(epoch):
            step.add(read, self.loader.place)
            if step.rounds == self.accumulation:
                if step.index >= first:
                    yield step.made()
                step = _LoaderStep(self.assembly, epoch, step.index + 1, step.row)
        if step.rounds and step.index >= first:
            yield step.made()

    def _rounds(self, epoch: int) -> Iterator[list[Any]]:
        """The batches of a pass. A loader that shuffles draws its order from the global generators: seeded between
        them, it gives the same batches whatever was computed meanwhile, and on every process."""
        seed_all(seed_for(self.assembly.seed, ORDER, epoch))
        for number, found in enumerate(self.loader.rounds(), start=1):
            yield found
            seed_all(seed_for(self.assembly.seed, COLLATION, epoch, number))


@dataclass
class _LoaderStep:
    """A step of a loader's batches that is being put together."""

    assembly: Assembly
    epoch: int
    index: int = 0
    row: int = 0
    """Number of the next row, over all batches that were read."""
    rounds: int = 0
    batches: list[tuple[Any, int]] = field(default_factory=list)
    """Those of this process, with the number of the first row of each."""
    last_read: Any = None

    def add(self, read: list[Any], place: int) -> None:
        """One more batch of each process."""
        self.rounds, self.last_read = self.rounds + 1, read[-1]
        for number, batch in enumerate(read):
            end = self.row + num_rows(batch)
            if number == place:
                self.batches.append((as_inputs(batch, range(self.row, end)), self.row))
            self.row = end

    def made(self) -> Step:
        counted = [self._counted(batch, row) for batch, row in self.batches]
        stand_in = None if counted else self._counted(as_inputs(self.last_read, ()), 0)
        plain = sum(num_positions(batch) for batch, _ in self.batches)
        return Step(self.epoch, self.index, tuple(counted), plain, stand_in)

    def _counted(self, batch: Any, row: int) -> MicroBatch:
        return self.assembly.counted(batch, range(row, row + num_rows(batch)))


def sample_of(source: PlannedSource, most: int = 64) -> Rows:
    """The first rows of the plan, to try things out on. At most `most`, none where the data are empty."""
    plan = replace(source.plan, origin=(0, 0)) if isinstance(source.plan, Plan) else source.plan
    numbers: list[int] = []
    for index in range(plan.steps_per_epoch):
        numbers += plan.rows(0, index)
        if len(numbers) >= most:
            break
    return source.assembly.read(source.dataset, numbers[:most], epoch=0) if numbers else []
