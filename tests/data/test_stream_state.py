"""A stream that says its place is gone on with from there, and none of its rows is read twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import datasets
import pytest

from burnish.core.errors import CheckpointError
from burnish.data.stream_state import placed, state_of


def table(rows: int = 40) -> datasets.IterableDataset:
    return datasets.Dataset.from_dict({"x": list(range(rows))}).to_iterable_dataset(num_shards=3)


def generated() -> datasets.IterableDataset:
    return datasets.IterableDataset.from_generator(lambda: ({"x": number} for number in range(40)))


class Counter:
    """A stream of somebody's own."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[dict[str, int]]:
        start, self.at = self.at, self.at
        for number in range(start, 40):
            self.at = number + 1
            yield {"x": number}
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


STREAMS: dict[str, Callable[[], Any]] = {
    "table": table,
    "generator": generated,
    "mapped": lambda: table().map(lambda row: {"x": row["x"] * 2}).filter(lambda row: row["x"] % 3 != 0),
    "mapped by batches": lambda: table().map(
        lambda rows: {"x": [x for x in rows["x"] for _ in (0, 1)]}, batched=True, batch_size=7
    ),
    "mixed": lambda: datasets.interleave_datasets([table(), table()], probabilities=[0.3, 0.7], seed=1),
    "concatenated": lambda: datasets.concatenate_datasets([table(), table()]),
    "cut": lambda: table().skip(3).take(25),
    "of somebody's own": Counter,
}


def numbers(stream: Any) -> list[int]:
    return [row["x"] for row in stream]


@pytest.mark.parametrize("read", [1, 5, 13, 14, 20])
@pytest.mark.parametrize("name", STREAMS)
def test_what_is_left_is_read(name: str, read: int) -> None:
    stream = STREAMS[name]()
    rows = iter(stream)
    for _ in range(read):
        next(rows)
    state = state_of(stream)
    left = numbers(rows)
    assert state is not None and left
    again = STREAMS[name]()
    with placed(again, state):
        assert numbers(again) == left
    assert numbers(again) == numbers(STREAMS[name]()), "the next who reads it reads all of it"


def test_streams_without_a_place() -> None:
    """Rows that a buffer holds back are in no state, so that it is no place to go on from."""
    shuffled = table().shuffle(seed=0, buffer_size=8)
    next(iter(shuffled))
    assert state_of(shuffled) is None
    assert state_of([1, 2]) is None

    class Odd(Counter):
        def state_dict(self) -> Any:
            return {"at": self}

    class Unready(Counter):
        def state_dict(self) -> Any:
            raise NotImplementedError

    assert state_of(Odd()) is None and state_of(Unready()) is None


@pytest.mark.parametrize(("one", "other"), [("table", "generator"), ("generator", "mixed"), ("mixed", "table")])
def test_a_state_of_another_stream_is_refused(one: str, other: str) -> None:
    stream = STREAMS[one]()
    next(iter(stream))
    with (
        pytest.raises(CheckpointError, match="is another stream than that of the checkpoint"),
        placed(STREAMS[other](), state_of(stream)),
    ):
        pass
    with pytest.raises(CheckpointError, match="has no `load_state_dict`"), placed([1], state_of(stream)):
        pass


def test_a_buffer_anywhere_in_a_stream_is_found() -> None:
    mixed = datasets.interleave_datasets([table(), table().shuffle(seed=0, buffer_size=4).map(lambda row: row)])
    next(iter(mixed))
    assert state_of(mixed) is None
