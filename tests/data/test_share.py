"""Rows shared out over processes: each on one of them, with nearly equal work."""

from __future__ import annotations

import random

import pytest

from burnish.data import share
from burnish.data.share import ROW_COST, Share, equal_work

LENGTHS = random.Random(3).choices([8, 16, 64, 300], k=64)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
@pytest.mark.parametrize("most", [None, 22, 64])
def test_every_row_is_in_one_part(parts: int, most: int | None) -> None:
    if most is not None and parts * most < len(LENGTHS):
        pytest.skip("not enough room")
    found = equal_work(LENGTHS, parts, most)
    assert sorted(row for part in found for row in part) == list(range(len(LENGTHS)))
    assert all(most is None or len(part) <= most for part in found)


def test_parts_differ_by_less_than_the_longest_row() -> None:
    work = [sum(LENGTHS[row] + ROW_COST for row in part) for part in equal_work(LENGTHS, 4)]
    assert max(work) - min(work) <= min(LENGTHS) + ROW_COST
    by_count = [sum(LENGTHS[row] for row in range(part, 64, 4)) for part in range(4)]
    assert max(by_count) - min(by_count) > 5 * (max(work) - min(work))


@pytest.mark.parametrize("rows", [0, 1, 50, 500, 3000])
@pytest.mark.parametrize("most_over_mean", [None, 1, 2])
def test_many_parts_are_filled_as_few_are(
    rows: int, most_over_mean: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = [int(random.Random(row).lognormvariate(3, 1)) for row in range(rows)]
    most = None if most_over_mean is None else -(-rows // 100) * most_over_mean
    found = equal_work(lengths, 100, most)
    monkeypatch.setattr(share, "MANY_PARTS", 1000)
    assert found == equal_work(lengths, 100, most)


def test_fewer_rows_than_parts() -> None:
    assert equal_work([5, 9], 4) == [[1], [0], [], []]
    assert equal_work([], 2) == [[], []]


def batches(*sizes: int) -> list[list[int]]:
    rows = iter(range(sum(sizes)))
    return [[next(rows) for _ in range(size)] for size in sizes]


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("by_work", [True, False])
@pytest.mark.parametrize("sizes", [(8, 8), (8, 3), (1,)])
def test_shares_together_are_the_step(count: int, by_work: bool, sizes: tuple[int, ...]) -> None:
    step = batches(*sizes)
    shares = [Share(index, count, by_work).of(step, LENGTHS.__getitem__) for index in range(count)]
    assert sorted(row for share in shares for batch in share for row in batch) == list(range(sum(sizes)))
    assert all(batch for share in shares for batch in share), "no empty batches"


def test_where_batches_stay_whole_every_process_has_its_part_of_each() -> None:
    shares = [Share(index, 2, by_work=False).of(batches(4, 4), LENGTHS.__getitem__) for index in (0, 1)]
    assert shares == [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]


def test_rows_of_unknown_length() -> None:
    assert Share(1, 2).of(batches(4)) == Share(1, 2).of(batches(4), lambda row: None) == [[1, 3]]


def test_a_process_that_computes_no_more_at_once_gets_no_more_rows() -> None:
    lengths = [1000, *[1] * 7]
    sizes = [len(Share(index, 2, same_number=True).of(batches(8), lengths.__getitem__)[0]) for index in (0, 1)]
    assert sizes == [4, 4]
    sizes = [len(Share(index, 2).of(batches(8), lengths.__getitem__)[0]) for index in (0, 1)]
    assert sizes == [1, 7]
