"""A stream in parts, each read for itself: which processes read which, and how the place in each is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from burnish.core.errors import SettingError

from .arrow_rows import is_of_datasets
from .share import Share

States = dict[str, Any]
"""Of parts of a stream, by number. JSON has no other keys."""


def own_parts(share: Share, parts: int) -> list[int]:
    """The parts that a process reads: one, some, or one that others read too (see `share_within`).

    Args:
        share: of the steps, which this process has among all.
        parts: of the stream; their number divides that of the processes, or is a multiple of it.
    """
    assert can_be_read(parts, share.count), "neither is a multiple of the other"
    return [share.index % parts] if parts < share.count else list(range(share.index, parts, share.count))


def share_within(share: Share, parts: int) -> Share:
    """What is its own of the rows of these parts."""
    return replace(share, index=share.index // parts, count=max(1, share.count // parts))


def can_be_read(parts: int, processes: int) -> bool:
    """Whether so many processes can read so many parts, in the same steps as one process for each."""
    return parts % processes == 0 or processes % parts == 0


def part_of(stream: Any, number: int, parts: int) -> Any:
    """Part `number` of a stream of `datasets`: some of its shards."""
    if parts == 1:
        return stream
    from datasets.distributed import split_dataset_by_node

    return split_dataset_by_node(stream, number, parts)


def refuse_uneven(stream: Any, parts: int) -> None:
    """Looks whether a stream can be read in so many parts.

    Raises:
        SettingError: it has no shards, or not the same number for each part.
    """
    shards = getattr(stream, "num_shards", None) if is_of_datasets(stream, "IterableDataset") else None
    if parts > 1 and (shards is None or shards % parts):
        has = "is no stream of `datasets`" if shards is None else f"has {shards} shards"
        raise SettingError(
            f"split_stream=True, and train_dataset {has}: {parts} processes need a multiple of their number, so that "
            "each reads as many. Set split_stream=False: then every process reads all and takes its share."
        )


def states_of_all(of_processes: Iterable[States | None]) -> States:
    """The states of all parts, from those that each process knows."""
    return {number: state for states in of_processes for number, state in (states or {}).items()}
