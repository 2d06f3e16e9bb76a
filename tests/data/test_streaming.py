"""A stream cut into steps: what is left at the end, several passes, and going on in the middle."""

from __future__ import annotations

from typing import Any

import datasets
import pytest
from stepping import NoisyStream, assembly, noise, rows, same

from burnish.core.types import Step
from burnish.data.microbatches import Budget
from burnish.data.streaming import StepStream


def steps(stream: Any, epoch: int = 0, first: int = 0, drop_last: bool = False, noisy: bool = True) -> list[Step]:
    parts = assembly(Budget(12, 1), noisy=noisy)
    return list(StepStream(stream, 3, 2, parts, epoch, first, drop_last))


@pytest.mark.parametrize(
    ("count", "sizes", "dropping"),
    [
        (0, [], []),
        (2, [2], []),
        (3, [3], [3]),
        (6, [6], [6]),
        (8, [6, 2], [6]),
        (10, [6, 4], [6, 3]),
        (12, [6, 6], [6, 6]),
    ],
)
def test_what_is_left_makes_a_smaller_step(count: int, sizes: list[int], dropping: list[int]) -> None:
    assert [step.num_examples for step in steps(NoisyStream(count))] == sizes
    assert [step.num_examples for step in steps(NoisyStream(count), drop_last=True)] == dropping


def test_going_on_in_the_middle_draws_what_the_whole_pass_draws() -> None:
    whole = steps(NoisyStream(20), epoch=1)
    for first in range(1, 5):
        noise()
        assert same(steps(NoisyStream(20), epoch=1, first=first), whole[first:])


def test_what_is_drawn_in_between_changes_nothing() -> None:
    whole = steps(NoisyStream(20))
    reading = iter(StepStream(NoisyStream(20), 3, 2, assembly(Budget(12, 1), noisy=True), 0, 0))
    found = []
    for step in reading:
        found.append(step)
        noise()
    assert same(found, whole)


def test_passes_are_told_and_draw_anew() -> None:
    stream = NoisyStream(6)
    first, second = steps(stream, epoch=0), steps(stream, epoch=1)
    assert stream.epoch == 1
    noises = [step[0].micro_batches[0].inputs["noise"].flatten().tolist() for step in (first, second)]
    assert not set(noises[0]) & set(noises[1])


def test_rows_are_numbered_by_their_place_in_the_pass() -> None:
    found = steps(NoisyStream(9), first=1)
    assert sorted(number for step in found for number in step.rows) == [6, 7, 8]
    for batch in found[0].micro_batches:
        assert batch.inputs["input_ids"][:, 0].tolist() == list(batch.rows)


def test_a_shuffled_stream_of_datasets_goes_on_in_the_same_order() -> None:
    stream = datasets.Dataset.from_list(rows(20)).to_iterable_dataset().shuffle(seed=3, buffer_size=8)
    passes = [steps(stream, epoch, noisy=False) for epoch in (0, 1)]
    assert all(sorted(n for s in found for n in _tokens(s)) == list(range(20)) for found in passes)
    assert [_tokens(step) for step in passes[0]] != [_tokens(step) for step in passes[1]]
    assert same(steps(stream, 1, first=2, noisy=False), passes[1][2:])


def _tokens(step: Step) -> list[int]:
    return [int(number) for batch in step.micro_batches for number in batch.inputs["input_ids"][:, 0]]
