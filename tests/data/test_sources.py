"""Steps are the same for every number of workers and from wherever they are read on."""

from __future__ import annotations

from typing import Any

import datasets
import pytest
import torch
from stepping import NoisyRows, NoisyStream, assembly, noise, noisy_collator, row, rows, same
from torch.utils.data import DataLoader, TensorDataset

from burnish.core.types import Step
from burnish.data.microbatches import Budget
from burnish.data.order import Shuffled
from burnish.data.plan import Plan
from burnish.data.sources import LoaderSource, Loading, PlannedSource, StreamSource, sample_of

ROWS = 23
SMALL = Budget(tokens=12, call_cost=1)


def planned(loading: Loading | None = None, dataset: Any = None, noisy: bool = True, size: int = ROWS) -> PlannedSource:
    parts = assembly(SMALL, noisy=noisy, examples_draw=noisy)
    plan = Plan(size, 3, 2, Shuffled(size, 1))
    return PlannedSource(NoisyRows(size) if dataset is None else dataset, plan, parts, loading or Loading())


def steps(source: Any, epoch: int = 0, first: int = 0) -> list[Step]:
    return list(source.steps(epoch, first))


def test_a_pass_holds_every_row_once_and_knows_its_place() -> None:
    for dataset in (rows(ROWS), datasets.Dataset.from_list(rows(ROWS))):
        source = planned(dataset=dataset, noisy=False)
        for epoch in (0, 1):
            found = steps(source, epoch)
            assert len(found) == source.steps_per_epoch == 4
            assert [(step.epoch, step.index) for step in found] == [(epoch, index) for index in range(4)]
            assert sorted(number for step in found for number in step.rows) == list(range(ROWS))
            assert [sorted(step.rows) for step in found] == [sorted(source.plan.rows(epoch, i)) for i in range(4)]


def test_steps_do_not_depend_on_where_reading_begins_nor_on_what_else_draws() -> None:
    whole = steps(planned(), epoch=1)
    noise()
    for first in range(1, 5):
        assert same(steps(planned(), epoch=1, first=first), whole[first:])
    interrupted = planned()
    reading = interrupted.steps(1, 0)
    next(reading)
    noise()
    assert same(list(reading), whole[1:])
    assert same(steps(interrupted, 1), whole)


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_give_the_same_steps(persistent: bool) -> None:
    """Two passes, the first left in the middle, and one that goes on from a step."""
    alone, helped = planned(), planned(Loading(2, prefetch_factor=2, persistent=persistent))
    reading = helped.steps(0, 0)
    assert same([next(reading), next(reading)], steps(alone)[:2])
    del reading
    assert same(steps(helped, 1), steps(alone, 1))
    assert same(steps(helped, 2, first=2), steps(alone, 2)[2:])


def test_the_callers_generator_is_not_read() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    steps(planned(dataset=rows(ROWS), noisy=False))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_first_rows_of_the_plan() -> None:
    source = planned(dataset=rows(ROWS), noisy=False)
    expected = [number for index in range(4) for number in source.plan.rows(0, index)]
    assert [number for number, _ in sample_of(source, 8)] == expected[:8]
    assert [number for number, _ in sample_of(source)] == expected
    assert sample_of(planned(dataset=[], noisy=False, size=0)) == []


# ---------------------------------------------------------------- streams


def streamed(workers: int = 0, size: int = ROWS) -> StreamSource:
    return StreamSource(NoisyStream(size), 3, 2, assembly(SMALL, noisy=True), Loading(workers))


def test_a_stream_with_workers_gives_the_same_steps() -> None:
    whole = steps(streamed(), epoch=1)
    assert sorted(number for step in whole for number in step.rows) == list(range(ROWS))
    assert same(steps(streamed(workers=2), epoch=1), whole)  # more than one would read each row twice
    assert same(steps(streamed(workers=1), epoch=1, first=2), whole[2:])


# ---------------------------------------------------------------- a user's loader


def augmented(count: int, batch_size: int = 2, **options: Any) -> DataLoader[Any]:
    return DataLoader(NoisyRows(count), batch_size, collate_fn=noisy_collator, **options)  # type: ignore[arg-type]


def test_batches_of_a_loader_are_left_as_they_are() -> None:
    built: list[Any] = []

    def build() -> Any:
        built.append(DataLoader(rows(9), 2, collate_fn=assembly().collate))  # type: ignore[arg-type]
        return built[-1]

    source = LoaderSource(build, 2, assembly(SMALL))
    assert source.steps_per_epoch == 3
    found = steps(source)
    assert [[batch.rows for batch in step.micro_batches] for step in found] == [
        [(0, 1), (2, 3)],
        [(4, 5), (6, 7)],
        [(8,)],
    ]
    assert [[batch.inputs["input_ids"][0, 0].item() for batch in step.micro_batches] for step in found] == [
        [0, 2],
        [4, 6],
        [8],
    ]
    assert found[2].num_positions_plain == len(row(8)["input_ids"])
    assert same(steps(source, 0, first=1), found[1:]) and steps(source, first=3) == []
    assert len(built) == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_shuffles_and_draws_goes_on_with_the_same_batches(workers: int) -> None:
    """Its order comes from the global generator, which training moves on; a resumed run sees the same batches."""
    whole = steps(LoaderSource(lambda: augmented(10, shuffle=True), 2, assembly()), epoch=1)
    torch.manual_seed(77)
    source = LoaderSource(lambda: augmented(10, shuffle=True, num_workers=workers), 2, assembly())
    resumed = steps(source, epoch=1, first=1)
    if workers == 0:
        assert same(resumed, whole[1:])
    order = [step.micro_batches[0].inputs["input_ids"][:, 0].tolist() for step in whole[1:]]
    assert [step.micro_batches[0].inputs["input_ids"][:, 0].tolist() for step in resumed] == order
    assert not same(steps(source, epoch=0), steps(source, epoch=1))


def test_a_loader_is_told_of_each_pass() -> None:
    stream = NoisyStream(4)
    source = LoaderSource(lambda: DataLoader(stream, 2, collate_fn=assembly().collate), 1, assembly())  # type: ignore[arg-type]
    assert source.steps_per_epoch is None
    assert [step.micro_batches[0].inputs["epoch"].tolist() for step in steps(source, epoch=3)] == [[3, 3], [3, 3]]


def test_a_loader_of_tuples() -> None:
    pairs = DataLoader(TensorDataset(torch.zeros(5, 2), torch.zeros(5)), 2)
    found = steps(LoaderSource(lambda: pairs, 2, assembly(SMALL)))
    assert [step.num_examples for step in found] == [4, 1]
