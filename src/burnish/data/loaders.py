"""A user's own loader when there are several processes: whose batches it gives."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch.utils.data.distributed import DistributedSampler

from burnish.core.protocols import Processes

from .batches import NumberedBatches, OrderedBatches, StreamBatches


class SharedLoader:
    """A loader as one of several processes reads it.

    A loader gives each process batches of its own (a `DistributedSampler`, a loader that accelerate has prepared, a
    dataset that was split), or all of them the same. Which it is shows in the first batch; batches that are the same
    for all are dealt out in turns: batch i is for process i modulo the number of processes.

    Args:
        loader: anything that can be iterated over.
    """

    def __init__(self, loader: Any, processes: Processes) -> None:
        self.loader, self.processes = loader, processes
        self.is_dealt = processes.count > 1 and not gives_own_batches(loader) and self._gives_all_the_same()
        self.each, self.place = (processes.count, processes.index) if self.is_dealt else (1, 0)

    @cached_property
    def num_rounds(self) -> int | None:
        """Batches of the process that has most; None where a loader has no length. Asked by all processes."""
        try:
            own = -(-len(self.loader) // self.each)
        except TypeError:
            own = None
        of_all = self.processes.all_of(own)
        known = [batches for batches in of_all if batches is not None]
        return max(known) if len(known) == len(of_all) else None

    def rounds(self) -> Iterator[list[Any]]:
        """The batches round by round, one for each process to which they are dealt out. That of this process is at
        `place`; the last round may have none for it."""
        batches = iter(self.loader)
        while read := list(islice(batches, self.each)):
            yield read

    def _gives_all_the_same(self) -> bool:
        batches = iter(self.loader)
        first = next(batches, None)
        if batches is self.loader:  # it can be read only once
            self.loader = chain([first], batches)
        digests = self.processes.all_of(digest(first))
        return len(set(digests)) == 1


def gives_own_batches(loader: Any) -> bool:
    """Whether a loader is known to give each process batches of its own: those of burnish are."""
    if isinstance(getattr(loader, "dataset", None), (OrderedBatches, NumberedBatches, StreamBatches)):
        return True
    samplers = (getattr(loader, "sampler", None), getattr(getattr(loader, "batch_sampler", None), "sampler", None))
    if any(isinstance(sampler, DistributedSampler) for sampler in samplers):
        return True
    return any(kind.__module__.startswith("accelerate.") for kind in type(loader).__mro__)


def digest(batch: Any) -> str:
    """A fingerprint of what a batch holds."""
    found = hashlib.blake2b(digest_size=16)
    for part in _parts(batch):
        found.update(part)
    return found.hexdigest()


def _parts(batch: Any) -> Iterator[bytes]:
    if isinstance(batch, torch.Tensor):
        batch = batch.detach().cpu()
        yield str((batch.dtype, tuple(batch.shape))).encode()
        yield batch.reshape(-1).view(torch.uint8).numpy().tobytes() if batch.numel() else b""
    elif isinstance(batch, np.ndarray):
        yield batch.tobytes()
    elif isinstance(batch, Mapping):
        for name in batch:
            yield str(name).encode()
            yield from _parts(batch[name])
    elif isinstance(batch, Iterable) and not isinstance(batch, (str, bytes)):
        for value in batch:
            yield from _parts(value)
    else:
        yield repr(batch).encode()
