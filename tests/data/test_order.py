"""Orders are permutations, drawn from (seed, pass) alone."""

from __future__ import annotations

import pytest
import torch

from burnish.data.order import MEGA_BATCH, GroupedByLength, Order, Sequential, Shuffled


def lengths(rows: int) -> list[int]:
    return [1 + (row * 7) % 31 for row in range(rows)]


@pytest.mark.parametrize("rows", [1, 2, 17, 256])
def test_every_pass_is_a_permutation(rows: int) -> None:
    orders: list[Order] = [Sequential(rows), Shuffled(rows, 0), GroupedByLength(lengths(rows), 2, 0)]
    for order in orders:
        for epoch in range(3):
            assert sorted(order(epoch)) == list(range(rows))


def test_passes_and_seeds_differ_and_repeat() -> None:
    for build in (lambda seed: Shuffled(64, seed), lambda seed: GroupedByLength(lengths(64), 1, seed)):
        assert build(1)(0) == build(1)(0)
        assert build(1)(0) != build(1)(1)
        assert build(1)(0) != build(2)(0)


def test_the_global_generator_is_neither_read_nor_moved() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = Shuffled(50, 5)(0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    assert Shuffled(50, 5)(0) == first


def test_rows_of_like_length_come_together() -> None:
    step_size, rows = 4, 4 * MEGA_BATCH * 2 + 3
    length = lengths(rows)
    order = GroupedByLength(length, step_size, 0)(0)
    steps = [[length[row] for row in order[i : i + step_size]] for i in range(0, rows, step_size)]
    spread = sum(max(step) - min(step) for step in steps) / len(steps)
    shuffled = Shuffled(rows, 0)(0)
    plain = [[length[row] for row in shuffled[i : i + step_size]] for i in range(0, rows, step_size)]
    assert spread < 0.1 * sum(max(step) - min(step) for step in plain) / len(plain)


def test_the_longest_row_of_all_comes_first() -> None:
    for seed in range(5):
        length = lengths(3 * MEGA_BATCH)
        length[100] = 1000
        assert GroupedByLength(length, 1, seed)(0)[0] == 100
    assert GroupedByLength([], 1, 0)(0) == []
