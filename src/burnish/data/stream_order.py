"""What the order of a stream of `datasets` hangs on, and reading it in that order in a worker too."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import torch.utils.data

from .arrow_rows import is_of_datasets
from .stream_state import layers_of


def order_of(stream: Any) -> str:
    """A fingerprint of the seeds by which a stream of `datasets` is shuffled or mixed, of its files, and of what share
    of it was taken; the same for all other streams. Without a seed it differs from one making to the next."""
    generators: list[Any] = [layer.generator for layer in layers_of(stream) if hasattr(layer, "generator")]
    states = [repr(generator.bit_generator.state) for generator in generators if generator is not None]
    return _digest([getattr(stream, "_distributed", None), files_of(stream), *states])


def files_of(stream: Any) -> str | None:
    """How many files a stream of `datasets` is made of, with a fingerprint of their names (without folders) in their
    order; None where it is made of something else."""
    found = [files for layer in layers_of(stream) if (files := _files(getattr(layer, "kwargs", None) or {}))]
    return f"{sum(map(len, found))} ({_digest(found)})" if found else None


def _files(given: dict[str, Any]) -> list[str]:
    """The names of files in what a reader was given, which may have them several times over."""
    for files in given.values():
        if isinstance(files, list) and files and all(isinstance(file, str) for file in files):
            return [file.replace("\\", "/").rpartition("/")[2] for file in files]
    return []


def _digest(value: Any) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()


@contextlib.contextmanager
def as_in_the_main_process(stream: Any) -> Iterator[None]:
    """Within, in the one worker that reads a stream, `datasets` is not told that it is in a worker: it would draw
    another order there."""
    info = torch.utils.data.get_worker_info()
    if info is None or not is_of_datasets(stream, "IterableDataset"):
        yield
        return
    import fsspec.asyn

    fsspec.asyn.reset_lock()  # what a fork may have left taken, by a thread of the other process
    known, torch.utils.data.get_worker_info = torch.utils.data.get_worker_info, lambda: None
    try:
        yield
    finally:
        torch.utils.data.get_worker_info = known
