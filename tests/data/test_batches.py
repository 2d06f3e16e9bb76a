"""Whole batches in dataset order, with draws that are the same every time."""

from __future__ import annotations

from typing import Any

import datasets
import pytest
import torch
from stepping import NoisyRows, NoisyStream, assembly, noise, rows

from burnish.data.batches import OrderedBatches, StreamBatches, in_order, is_stream
from burnish.data.sources import Loading

Batches = list[dict[str, torch.Tensor]]


def equal(one: Batches, other: Batches) -> bool:
    return len(one) == len(other) and all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        for a, b in zip(one, other, strict=True)
    )


def read(dataset: Any, workers: int = 0) -> Batches:
    batches = OrderedBatches(dataset, in_order(len(dataset), 3), assembly(noisy=True))
    return list(Loading(workers).loader(batches, sampler=range(len(batches))))  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (6, [3, 3]), (8, [3, 3, 2])])
def test_rows_in_order(count: int, sizes: list[int]) -> None:
    numbers = in_order(count, 3)
    assert [len(batch) for batch in numbers] == sizes
    assert [row for batch in numbers for row in batch] == list(range(count))
    for found in (read(rows(count)), list(StreamBatches(NoisyStream(count), 3, assembly()))):
        assert [row for batch in found for row in batch["input_ids"][:, 0].tolist()] == list(range(count))


def test_what_is_drawn_is_the_same_every_time_and_for_any_number_of_workers() -> None:
    """So two evaluations differ by the model alone."""
    first = read(NoisyRows(8))
    noise()
    assert equal(read(NoisyRows(8)), first)
    assert equal(read(NoisyRows(8), workers=2), first)
    values = torch.cat([batch[name].flatten() for batch in first for name in ("noise", "drawn")])
    assert len(values.unique()) == len(values)


def test_a_stream_draws_the_same_every_time() -> None:
    def found(workers: int = 0) -> Batches:
        batches = StreamBatches(NoisyStream(8), 3, assembly(noisy=True))
        return list(Loading(workers).loader(batches, most_workers=1))  # type: ignore[arg-type]

    first = found()
    noise()
    assert equal(found(), first) and equal(found(workers=2), first)


def test_what_can_only_be_read_in_order() -> None:
    table = datasets.Dataset.from_list(rows(2))
    assert is_stream(NoisyStream(2)) and is_stream(table.to_iterable_dataset()) and is_stream(iter(rows(2)))
    assert not any(map(is_stream, (table, rows(2), NoisyRows(2))))
