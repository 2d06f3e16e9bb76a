"""The plan: every row once a pass, and the same rows whoever asks for a step, and when."""

from __future__ import annotations

import random

import pytest

from burnish.data.order import GroupedByLength, Order, Sequential, Shuffled
from burnish.data.plan import Plan

SIZES = [(1, 1, 1), (7, 2, 3), (10, 4, 1), (13, 3, 2), (24, 4, 3), (5, 8, 2), (101, 7, 5)]
"""Rows, batch size, accumulation."""


def plan(rows: int, batch: int, accumulation: int, drop_last: bool = False, kind: str = "shuffled") -> Plan:
    orders: dict[str, Order] = {
        "sequential": Sequential(rows),
        "shuffled": Shuffled(rows, seed=3),
        "grouped": GroupedByLength([1 + row % 5 for row in range(rows)], batch * accumulation, seed=3),
    }
    return Plan(rows, batch, accumulation, orders[kind], drop_last)


@pytest.mark.parametrize("kind", ["sequential", "shuffled", "grouped"])
@pytest.mark.parametrize(("rows", "batch", "accumulation"), SIZES)
def test_every_row_once_a_pass(rows: int, batch: int, accumulation: int, kind: str) -> None:
    asked = plan(rows, batch, accumulation, kind=kind)
    steps = [asked.batches(1, step) for step in range(asked.steps_per_epoch)]
    assert sorted(row for step in steps for part in step for row in part) == list(range(rows))
    assert all(len(part) == batch for step in steps for part in step[:-1])
    assert all(len(step) == accumulation for step in steps[:-1])
    assert all(part for step in steps for part in step)


@pytest.mark.parametrize(("rows", "batch", "accumulation"), SIZES)
def test_drop_last_leaves_out_less_than_a_batch(rows: int, batch: int, accumulation: int) -> None:
    asked = plan(rows, batch, accumulation, drop_last=True)
    batches = [part for step in range(asked.steps_per_epoch) for part in asked.batches(0, step)]
    assert len(batches) == rows // batch and all(len(part) == batch for part in batches)
    taken = [row for part in batches for row in part]
    assert len(set(taken)) == len(taken) == asked.rows_per_epoch


def test_a_step_is_the_same_in_whatever_order_steps_are_asked_for() -> None:
    straight = plan(23, 3, 2)
    places = [(epoch, step) for epoch in range(3) for step in range(straight.steps_per_epoch)]
    expected = {place: straight.rows(*place) for place in places}
    random.Random(0).shuffle(places)
    hopping = plan(23, 3, 2)
    assert {place: hopping.rows(*place) for place in places} == expected


def test_batches_and_accumulation_make_the_same_steps() -> None:
    splits = [plan(37, 8, 1), plan(37, 4, 2), plan(37, 1, 8)]
    for step in range(5):
        assert splits[0].rows(2, step) == splits[1].rows(2, step) == splits[2].rows(2, step)


def test_a_step_that_a_pass_does_not_have() -> None:
    for step in (-1, 4):
        with pytest.raises(IndexError, match=f"4 steps, there is no step {step}"):
            plan(10, 3, 1).batches(0, step)
    assert plan(0, 3, 1).steps_per_epoch == 0
    assert plan(2, 3, 1, drop_last=True).steps_per_epoch == 0


def test_the_last_order_is_drawn_once() -> None:
    drawn: list[int] = []

    def order(epoch: int) -> range:
        drawn.append(epoch)
        return range(6)

    asked = Plan(6, 2, 1, order)
    for epoch in (0, 1):
        for step in range(3):
            asked.rows(epoch, step)
    assert drawn == [0, 1]


def test_a_pass_is_gone_on_with_at_a_row() -> None:
    """Rows before the origin are in no step; the step that it falls into is shorter; other passes are whole."""
    plan = Plan(10, 2, 2, Sequential(10), origin=(1, 5))
    assert [plan.rows(1, step) for step in range(3)] == [[], [5, 6, 7], [8, 9]]
    assert [plan.rows(2, step) for step in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert plan.batches(1, 1) == [[5, 6], [7]]
