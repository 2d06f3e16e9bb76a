"""Evaluation on several processes: each row on one of them, and on all of them what came out for all rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from burnish.core.protocols import Processes
from burnish.core.types import MicroBatch, are_rows_apart
from burnish.data.assembly import as_inputs
from burnish.data.batches import OrderedBatches, StreamBatches
from burnish.data.counting import num_rows
from burnish.data.loaders import SharedLoader
from burnish.evaluation.apart import BatchesApart
from burnish.evaluation.collect import Collector
from burnish.loop.evaluating import LossMean, NumberedInputs

from .length_order import ByLength

if TYPE_CHECKING:
    from .judging import Judging


def own_batches(loader: Any, processes: Processes) -> Iterable[Any]:
    """The batches of this process, with the numbers of their rows in the dataset where these are known."""
    if isinstance(loader, ByLength):
        return loader.numbered()
    if processes.count == 1:
        return loader  # type: ignore[no-any-return]
    dataset = getattr(loader, "dataset", None)
    if isinstance(dataset, OrderedBatches):
        return (
            NumberedInputs(inputs, tuple(dataset.row_numbers[number]))
            for number, inputs in zip(loader.sampler, loader, strict=True)
        )
    if isinstance(dataset, StreamBatches):
        return _of_stream(loader, dataset)
    return _of_users_loader(SharedLoader(loader, processes), processes)


def in_lockstep(batches: Iterable[Any], loader: Any, processes: Processes) -> Iterator[Any]:
    """The same batches where every process must compute as many as the one that has most, since a forward pass is a
    work of all: one that has no more computes its last one again, or any other, in vain."""
    own, last = iter(batches), None
    while True:
        batch = next(own, None)
        if not any(row[0] for row in processes.table([float(batch is not None)])):
            return
        if batch is not None:
            last = batch.inputs if isinstance(batch, (MicroBatch, NumberedInputs)) else batch
            yield batch
        else:
            last = _any_batch(loader) if last is None else last
            yield NumberedInputs(last, (), stands_in=True)


def _any_batch(loader: Any) -> Any:
    loader = loader.in_dataset_order if isinstance(loader, ByLength) else loader
    dataset = getattr(loader, "dataset", None)
    if isinstance(dataset, OrderedBatches):
        return dataset[0]
    if isinstance(dataset, StreamBatches):
        dataset = StreamBatches(dataset.dataset, dataset.batch_size, dataset.assembly)
        return next(iter(dataset))
    return next(iter(loader))


def _of_stream(loader: Any, stream: StreamBatches) -> Iterator[NumberedInputs]:
    """All batches of a stream but the last have one size."""
    for number, inputs in zip(count(stream.index, stream.count), loader, strict=False):
        first = number * stream.batch_size
        yield NumberedInputs(inputs, tuple(range(first, first + num_rows(inputs))))


def _of_users_loader(shared: SharedLoader, processes: Processes) -> Iterator[Any]:
    known = None if shared.is_dealt else known_rows(shared.loader)
    if shared.is_dealt:
        first = 0
        for batches in shared.rounds():
            for place, inputs in enumerate(batches):
                rows = num_rows(inputs)
                if place == shared.place:
                    yield NumberedInputs(inputs, tuple(range(first, first + rows)))
                first += rows
    elif known is None:
        yield from shared.loader
    else:
        repeated = _repeated(processes.all_of(known), processes.index)
        for own, again, inputs in zip(known, repeated, shared.loader, strict=True):
            kept = [place for place in range(len(own)) if place not in again]
            if len(kept) == len(own) or not are_rows_apart(as_inputs(inputs, own), len(own)):
                yield NumberedInputs(inputs, tuple(own))
            elif kept:
                picked = _picked(as_inputs(inputs, own), len(own), kept)
                yield NumberedInputs(picked, tuple(own[place] for place in kept))


def known_rows(loader: Any) -> list[list[int]] | None:
    """The rows of each batch of this process, where the loader takes them in a fixed order; None otherwise."""
    batches = getattr(loader, "batch_sampler", None)
    sampler: Any = batches
    while getattr(sampler, "batch_sampler", None) is not None or hasattr(sampler, "sampler"):
        sampler = getattr(sampler, "batch_sampler", None) or sampler.sampler
    is_fixed = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, DistributedSampler) and not sampler.shuffle
    )
    return [list(rows) for rows in batches] if isinstance(loader, DataLoader) and is_fixed and batches else None


def _repeated(of_processes: Sequence[list[list[int]]], index: int) -> list[set[int]]:
    """For each batch of a process the places of rows that came before, batch by batch over the processes: samplers that
    give all processes as many rows fill up with rows of others."""
    seen: set[int] = set()
    found: list[set[int]] = []
    for number in range(max(map(len, of_processes), default=0)):
        for process, batches in enumerate(of_processes):
            rows = batches[number] if number < len(batches) else []
            again = {place for place, row in enumerate(rows) if row in seen}
            seen.update(rows)
            if process == index and number < len(batches):
                found.append(again)
    return found


def _picked(inputs: dict[str, Any], size: int, kept: list[int]) -> dict[str, Any]:
    index = torch.tensor(kept)
    return {
        name: value[index] if isinstance(value, torch.Tensor) and value.dim() and len(value) == size else value
        for name, value in inputs.items()
    }


def over_processes(
    loss: LossMean, rows: int, judging: Judging, processes: Processes
) -> tuple[LossMean, int, dict[str, Collector | BatchesApart]]:
    """Loss, number of rows and collectors of all processes, the same on each of them; metrics are merged."""
    if processes.count == 1:
        return loss, rows, judging.gather
    table = processes.table([loss.total, loss.targets, rows])
    total, targets, all_rows = (sum(column) for column in zip(*table, strict=True))
    gathered = {name: _merged(judging, collector, processes) for name, collector in judging.gather.items()}
    judging.merge(processes)
    return LossMean(total, int(targets)), int(all_rows), gathered


def terms_over_processes(own: dict[str, LossMean], processes: Processes) -> dict[str, float]:
    """The means of named terms of the loss, over the targets of all processes."""
    means: dict[str, LossMean] = {}
    for of_process in processes.all_of({name: (mean.total, mean.targets) for name, mean in own.items()}):
        for name, (total, targets) in of_process.items():
            mean = means.setdefault(name, LossMean())
            mean.total, mean.targets = mean.total + total, mean.targets + targets
    return {name: mean.value for name, mean in means.items() if mean.value is not None}


def _merged(judging: Judging, collector: Any, processes: Processes) -> Collector | BatchesApart:
    """One collector of those of all processes."""
    merged = judging.collector()
    merged.merge(processes.all_of(collector.state()))
    return merged
