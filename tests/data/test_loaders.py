"""Whose batches a user's own loader gives, and how they are dealt out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from burnish.data.batches import OrderedBatches
from burnish.data.loaders import SharedLoader, digest, gives_own_batches


class Others:
    """Another process whose first batch is the same, or not."""

    local_index = 0

    def __init__(self, count: int, index: int, same: bool) -> None:
        self.count, self.index, self.same, self.asked = count, index, same, 0

    def all_of(self, value: Any) -> list[Any]:
        self.asked += 1
        if not isinstance(value, str):  # how many batches: the others have two more
            return [value, *[value if self.same or value is None else value + 2] * (self.count - 1)]
        return [value] * self.count if self.same else [value, *["other"] * (self.count - 1)]


def loader(count: int = 7) -> Any:
    return DataLoader(list(range(count)), batch_size=1)


def numbers(rounds: list[list[Any]]) -> list[list[int]]:
    return [[int(batch) for batch in batches] for batches in rounds]


def test_one_process_takes_all() -> None:
    shared = SharedLoader(loader(), Others(1, 0, same=True))
    assert numbers(list(shared.rounds())) == [[n] for n in range(7)] and shared.num_rounds == 7 and not shared.is_dealt


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_same_batches_are_dealt_out(index: int) -> None:
    shared = SharedLoader(loader(), Others(3, index, same=True))
    assert (shared.is_dealt, shared.place, shared.num_rounds) == (True, index, 3)
    assert numbers(list(shared.rounds())) == [[0, 1, 2], [3, 4, 5], [6]]
    assert numbers(list(shared.rounds())) == [[0, 1, 2], [3, 4, 5], [6]], "a second pass"


def test_other_batches_are_kept() -> None:
    shared = SharedLoader(loader(), Others(3, 1, same=False))
    assert (shared.is_dealt, shared.place, shared.num_rounds) == (False, 0, 9), "as many as the process that has most"
    assert numbers(list(shared.rounds())) == [[n] for n in range(7)]


def test_what_can_be_read_once_loses_nothing() -> None:
    shared = SharedLoader(iter([0, 1, 2]), Others(2, 0, same=True))
    assert list(shared.rounds()) == [[0, 1], [2]] and shared.num_rounds is None


def test_known_loaders_are_not_tried_out() -> None:
    rows = list(range(4))
    split = DataLoader(rows, sampler=DistributedSampler(rows, num_replicas=2, rank=0))
    ours: Any = DataLoader(OrderedBatches(rows, [[0, 1], [2, 3]], assembly=_assembly()), batch_size=None)
    for known in (split, ours):
        processes = Others(2, 0, same=True)
        assert gives_own_batches(known) and not SharedLoader(known, processes).is_dealt and processes.asked == 0
    assert not gives_own_batches(loader()) and not gives_own_batches([1])


def _assembly() -> Any:
    import stepping

    return stepping.assembly()


def test_a_digest_is_of_the_values() -> None:
    one = {"a": torch.arange(3), "b": ["x", torch.tensor(1.5)], "c": None}
    same = {"a": torch.arange(3), "b": ["x", torch.tensor(1.5)], "c": None}
    assert digest(one) == digest(same)
    others = [
        {**one, "a": torch.arange(3) + 1},
        {**one, "b": ["y", torch.tensor(1.5)]},
        {**one, "a": torch.arange(3.0)},
    ]
    assert len({digest(one), *map(digest, others)}) == 4
    assert digest(torch.tensor(1.0, dtype=torch.bfloat16)) and digest(torch.zeros(0))
