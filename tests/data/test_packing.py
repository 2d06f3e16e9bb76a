"""Bins: every row once a pass, within their size, few of them, and the same whoever asks."""

from __future__ import annotations

import math
import random

import datasets
import pytest
from stepping import NoisyRows, assembly, rows, same

from burnish.core.errors import SettingError
from burnish.data.microbatches import Budget
from burnish.data.packing import LONGEST_BIN, PackedPlan, best_fit, bins_of
from burnish.data.sources import Loading, PlannedSource, sample_of


def drawn(count: int, longest: int, seed: int = 0) -> list[int]:
    draw = random.Random(seed)
    return [draw.randint(1, longest) for _ in range(count)]


def packed(
    lengths: list[int], size: int, batch: int = 3, accumulation: int = 2, seed: int | None = 1, drop_last: bool = False
) -> PackedPlan:
    data = [{"input_ids": [5] * length} for length in lengths]
    return PackedPlan.of(bins_of(data, size), batch, accumulation, seed, drop_last)


def test_every_length_once_within_the_size() -> None:
    for seed in range(40):
        draw = random.Random(seed)
        size = draw.choice([1, 7, 20, 100])
        lengths = sorted(drawn(draw.randint(1, 80), size, seed), reverse=True)
        bins = best_fit(lengths, size)
        assert sorted(place for places in bins for place in places) == list(range(len(lengths)))
        assert all(sum(lengths[place] for place in places) <= size for places in bins)


def fewest(lengths: list[int], size: int, spaces: tuple[int, ...] = ()) -> int:
    """Of all ways to fill bins."""
    if not lengths:
        return len(spaces)
    first, rest = lengths[0], lengths[1:]
    ways = [(*spaces, size - first)]
    ways += [(*spaces[:i], space - first, *spaces[i + 1 :]) for i, space in enumerate(spaces) if space >= first]
    return min(fewest(rest, size, way) for way in ways)


def test_few_bins() -> None:
    for seed in range(60):
        lengths = sorted(drawn(random.Random(seed).randint(1, 7), 20, seed), reverse=True)
        assert len(best_fit(lengths, 20)) <= fewest(lengths, 20) * 11 / 9 + 6 / 9


def test_the_tightest_space_is_taken() -> None:
    assert best_fit([6, 5, 4, 3, 2], 10) == [[0, 2], [1, 3, 4]]
    assert best_fit([7, 6, 3], 10) == [[0, 2], [1]]  # a space of 3, not of 4
    assert best_fit([], 10) == []
    assert best_fit([0, 0], 10) == [[0, 1]]


def test_a_row_longer_than_a_bin_is_one_alone() -> None:
    bins = bins_of([{"input_ids": [5] * length} for length in (12, 3, 4)], 8)
    assert bins.places == [[0], [1, 2]]
    assert bins.filled == pytest.approx((8 + 7) / 16)


def test_the_size_is_that_of_the_longest_row() -> None:
    assert bins_of([{"input_ids": [5] * length} for length in (12, 3, 4)], None).size == 12
    assert bins_of([{"input_ids": [5] * (LONGEST_BIN + 9)}], None).size == LONGEST_BIN
    assert bins_of([{"input_ids": []}], None).size == 1


def test_random_lengths_fill_their_bins() -> None:
    assert packed(drawn(2000, 200), 256).bins.filled > 0.98


@pytest.mark.parametrize("seed", [None, 1])
def test_every_row_once_a_pass_in_bins(seed: int | None) -> None:
    lengths = drawn(101, 20)
    plan = packed(lengths, 32, seed=seed)
    assert plan.steps_per_epoch == math.ceil(len(plan.bins) / 6)
    for epoch in (0, 1, 2):
        steps = [plan.batches(epoch, step) for step in range(plan.steps_per_epoch)]
        taken = [row for step in steps for batch in step for row in batch]
        assert sorted(taken) == list(range(101))
        assert all(sum(lengths[row] for row in batch) <= 3 * 32 for step in steps for batch in step)
    with pytest.raises(IndexError):
        plan.batches(0, plan.steps_per_epoch)


def test_passes_differ_and_steps_do_not_depend_on_when_they_are_asked_for() -> None:
    straight = packed(drawn(60, 9), 12)
    places = [(epoch, step) for epoch in range(3) for step in range(straight.steps_per_epoch)]
    expected = {place: straight.rows(*place) for place in places}
    random.Random(0).shuffle(places)
    hopping = packed(drawn(60, 9), 12)
    assert {place: hopping.rows(*place) for place in places} == expected
    assert expected[0, 0] != expected[1, 0]
    assert {frozenset(expected[0, step]) for step in range(3)} != {frozenset(expected[1, step]) for step in range(3)}


def test_in_the_order_of_the_dataset() -> None:
    """Rows of one length as they stand, bins by their first row, in every pass."""
    plan = packed([4, 4, 4, 4, 4], 8, batch=1, accumulation=1, seed=None)
    for epoch in (0, 1):
        assert [plan.rows(epoch, step) for step in range(3)] == [[0, 1], [2, 3], [4]]


def test_the_last_bins_may_be_dropped() -> None:
    plan = packed([4] * 7, 4, batch=3, accumulation=1, drop_last=True)
    assert plan.steps_per_epoch == 2
    assert len({row for step in range(2) for row in plan.rows(0, step)}) == 6


@pytest.mark.parametrize("workers", [0, 2])
def test_steps_of_a_source(workers: int) -> None:
    """From wherever they are read on, and with workers."""
    table = datasets.Dataset.from_list(rows(23))
    plan = PackedPlan.of(bins_of(table, 9), 2, 2, seed=3)
    source = PlannedSource(table, plan, assembly(Budget(12, 1)), Loading(workers))
    whole = list(source.steps(1, 0))
    assert len(whole) == plan.steps_per_epoch > 2
    assert sorted(row for step in whole for row in step.rows) == list(range(23))
    assert same(list(source.steps(1, 2)), whole[2:])
    assert len(sample_of(source)) == 23


def test_rows_whose_lengths_are_not_known() -> None:
    with pytest.raises(SettingError, match="packing=True needs the length of every row"):
        bins_of(NoisyRows(4), 8)
    table = datasets.Dataset.from_list([{"text": "a", "length": 3}, {"text": "b", "length": 4}])
    assert bins_of(table, 8, length_column="length").places == [[0, 1]]
