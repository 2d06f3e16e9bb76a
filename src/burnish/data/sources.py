"""Where steps come from: a planned dataset, a stream, or the loader of a user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from burnish.core.randomness import COLLATION, ORDER, seed_all, seed_for
from burnish.core.types import Step

from .assembly import Assembly, Rows, as_inputs
from .counting import num_positions, num_rows
from .packing import PackedPlan
from .plan import Plan
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

    def __init__(self, dataset: Any, plan: Plan | PackedPlan, assembly: Assembly) -> None:
        self.dataset, self.plan, self.assembly = dataset, plan, assembly

    def __getitem__(self, place: tuple[int, int]) -> Step:
        epoch, index = place
        batches = self.plan.batches(epoch, index)
        rows = iter(self.assembly.read(self.dataset, [row for batch in batches for row in batch], epoch))
        return self.assembly.step(epoch, index, [[next(rows) for _ in batch] for batch in batches])


class _Places:
    """The places (pass, step) that are wanted next; set before each pass."""

    def __init__(self) -> None:
        self.epoch, self.steps = 0, range(0)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return ((self.epoch, index) for index in self.steps)

    def __len__(self) -> int:
        return len(self.steps)


class PlannedSource:
    """Steps of a map-style dataset in the order of its plan. Resuming reads nothing of what came before."""

    def __init__(self, dataset: Any, plan: Plan | PackedPlan, assembly: Assembly, loading: Loading) -> None:
        self.dataset, self.plan, self.assembly, self.loading = dataset, plan, assembly, loading
        self._places = _Places()
        self._loader = loading.loader(_PlannedSteps(dataset, plan, assembly), sampler=self._places)

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

    def steps(self, epoch: int, first: int) -> Iterator[Step]:
        stream = StepStream(
            self.dataset, self.batch_size, self.accumulation, self.assembly, epoch, first, self.drop_last
        )
        return iter(self.loading.loader(stream, most_workers=1))


@dataclass
class LoaderSource:
    """Steps of a user's own loader: its batches as they are, `accumulation` of them a step."""

    build: Callable[[], Any]
    accumulation: int
    assembly: Assembly
    _loader: Any = field(default=None, repr=False)

    @property
    def loader(self) -> Any:
        if self._loader is None:
            self._loader = self.build()
        return self._loader

    @property
    def steps_per_epoch(self) -> int | None:
        try:
            return -(-len(self.loader) // self.accumulation)
        except TypeError:
            return None  # a loader over a stream has no length

    def steps(self, epoch: int, first: int) -> Iterator[Step]:
        for owner in (self.loader, getattr(self.loader, "sampler", None), getattr(self.loader, "dataset", None)):
            set_epoch = getattr(owner, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)
        batches: list[Any] = []
        index, row = 0, 0
        for batch in self._batches(epoch):
            batches.append(as_inputs(batch, range(row, row + num_rows(batch))))
            row += num_rows(batch)
            if len(batches) == self.accumulation:
                if index >= first:
                    yield self._step(epoch, index, batches, row)
                batches, index = [], index + 1
        if batches and index >= first:
            yield self._step(epoch, index, batches, row)

    def _batches(self, epoch: int) -> Iterator[Any]:
        """The batches of a pass. A loader that shuffles draws its order from the global generators: seeded between
        them, it gives the same batches whatever was computed meanwhile."""
        seed_all(seed_for(self.assembly.seed, ORDER, epoch))
        for number, batch in enumerate(self.loader, start=1):
            yield batch
            seed_all(seed_for(self.assembly.seed, COLLATION, epoch, number))

    def _step(self, epoch: int, index: int, batches: list[Any], end_row: int) -> Step:
        row = end_row - sum(map(num_rows, batches))
        counted = []
        for batch in batches:
            counted.append(self.assembly.counted(batch, range(row, row + num_rows(batch))))
            row += num_rows(batch)
        return Step(epoch, index, tuple(counted), sum(map(num_positions, batches)))


def sample_of(source: PlannedSource, most: int = 64) -> Rows:
    """The first rows of the plan, to try things out on. At most `most`, none where the data are empty."""
    plan = replace(source.plan, origin=(0, 0)) if isinstance(source.plan, Plan) else source.plan
    numbers: list[int] = []
    for index in range(plan.steps_per_epoch):
        numbers += plan.rows(0, index)
        if len(numbers) >= most:
            break
    return source.assembly.read(source.dataset, numbers[:most], epoch=0) if numbers else []
