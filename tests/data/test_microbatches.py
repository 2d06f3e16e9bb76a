"""Micro-batches hold every example once, keep to the budget, and cost the least."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from burnish.data.microbatches import Budget, cut, filled


def cases(largest: int, number: int) -> Iterator[tuple[list[int], Budget]]:
    draw = random.Random(7)
    for _ in range(number):
        lengths = [draw.randint(1, 12) for _ in range(draw.randint(1, largest))]
        rows = draw.choice([None, None, 1, 2, 3])
        yield lengths, Budget(draw.choice([1, 8, 12, 20, 40, 10**6]), draw.choice([0, 1, 5, 30]), rows)


def cost(groups: Sequence[Sequence[int]], lengths: Sequence[int], budget: Budget) -> int:
    return sum(len(group) * max(lengths[i] for i in group) + budget.call_cost for group in groups)


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """All ways of putting items into groups."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for groups in partitions(rest):
        yield [[first], *groups]
        for i, group in enumerate(groups):
            yield [*groups[:i], [first, *group], *groups[i + 1 :]]


def fits(group: Sequence[int], lengths: Sequence[int], budget: Budget) -> bool:
    if len(group) == 1:
        return True
    within = budget.rows is None or len(group) <= budget.rows
    return within and len(group) * max(lengths[i] for i in group) <= budget.tokens


def test_every_example_once_and_within_the_budget() -> None:
    for lengths, budget in cases(largest=60, number=200):
        groups = cut(lengths, budget)
        assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
        assert all(fits(group, lengths, budget) for group in groups), (lengths, budget)


def test_no_grouping_of_the_examples_costs_less() -> None:
    """Against all ways of grouping, not only those that keep the order of lengths."""
    for lengths, budget in cases(largest=6, number=120):
        best = min(
            cost(groups, lengths, budget)
            for groups in partitions(list(range(len(lengths))))
            if all(fits(group, lengths, budget) for group in groups)
        )
        assert cost(cut(lengths, budget), lengths, budget) == best, (lengths, budget)


def test_the_longest_go_first() -> None:
    groups = cut([3, 9, 1, 9, 5], Budget(tokens=10, call_cost=0))
    longest = [max((3, 9, 1, 9, 5)[i] for i in group) for group in groups]
    assert longest == sorted(longest, reverse=True)


@pytest.mark.parametrize(
    ("lengths", "budget", "expected"),
    [
        ([], Budget(10, 1), []),
        ([50], Budget(10, 1), [[0]]),  # longer than the budget: alone
        ([4, 4, 4], Budget(sys.maxsize, 1), [[0, 1, 2]]),
        ([4, 4, 4], Budget(sys.maxsize, 1, rows=2), [[0], [1, 2]]),
        ([0, 0], Budget(1, 1), [[0, 1]]),
        ([100, 1], Budget(10**6, 10), [[0], [1]]),  # 99 positions of padding, or a call for 10
        ([100, 1], Budget(10**6, 200), [[0, 1]]),
    ],
)
def test_small_cases(lengths: list[int], budget: Budget, expected: list[list[int]]) -> None:
    assert cut(lengths, budget) == expected


def test_equal_lengths_always_give_equal_groups() -> None:
    for lengths, budget in cases(largest=40, number=50):
        assert cut(lengths, budget) == cut(list(lengths), budget)


def test_a_whole_dataset_every_example_once_and_within_the_budget() -> None:
    for lengths, budget in cases(largest=60, number=200):
        groups = filled(lengths, budget)
        assert [i for group in groups for i in group] == sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
        assert all(fits(group, lengths, budget) for group in groups), (lengths, budget)
        padding = [len(group) * lengths[group[0]] - sum(lengths[i] for i in group) for group in groups]
        assert max(padding) <= budget.call_cost
        tight = filled(lengths, replace(budget, padding_costs=False))
        assert all(len(group) == 1 or sum(lengths[i] for i in group) <= budget.tokens for group in tight)


def test_groups_of_a_whole_dataset_are_full() -> None:
    """A group ends only where the next example would not fit."""
    assert filled([3, 3, 3, 3, 3], Budget(9, call_cost=10)) == [[0, 1, 2], [3, 4]]
    assert filled([3] * 5, Budget(100, call_cost=10, rows=2)) == [[0, 1], [2, 3], [4]]
    assert filled([9, 1, 1, 1], Budget(100, call_cost=7)) == [[0], [1, 2, 3]]
    assert filled([9, 1, 1, 1], Budget(100, call_cost=8)) == [[0, 1], [2, 3]]
    assert filled([9, 1, 1, 1], Budget(11, call_cost=0, padding_costs=False)) == [[0, 1, 2], [3]]
    assert filled([], Budget(9, 1)) == []
    assert filled([0, 0], Budget(9, 1)) == [[0, 1]]
