"""Sums that do not depend on their order."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from burnish.evaluation.totals import ExactSum, add


@pytest.mark.parametrize(
    "numbers",
    [
        [0.1, 0.2, 0.3],
        [1e308, -1e308, 1.0],
        [5e-324, 1e300, -1e300],
        [-2.5, 1 / 3, 7e-9, 0.0],
        np.random.default_rng(0).normal(size=1000) * 10.0 ** np.random.default_rng(1).integers(-200, 200, 1000),
        [],
    ],
)
def test_nothing_is_lost(numbers: list[float]) -> None:
    expected = sum(map(Fraction, list(numbers)), Fraction(0))
    assert ExactSum.of(numbers).exact == expected
    assert (ExactSum.of(numbers[:2]) + ExactSum.of(numbers[2:])).exact == expected
    assert math.fsum(numbers) == (ExactSum.of(numbers).over(1))


def test_many_numbers_of_one_size() -> None:
    """More than 2 ** 10 numbers with 53 bits each would not fit into an int64."""
    numbers = np.full(200_000, 2.0**53 - 1)
    assert ExactSum.of(numbers).exact == 200_000 * (2**53 - 1)


def test_what_is_not_finite() -> None:
    assert ExactSum.of([1.0, math.inf]).over(2) == math.inf
    assert math.isnan((ExactSum.of([math.nan]) + ExactSum.of([1.0])).over(2))
    assert math.isnan((ExactSum.of([math.inf]) + ExactSum.of([-math.inf])).over(2))
    assert math.isnan(ExactSum.of([]).over(0))


def test_adding_totals() -> None:
    totals = {"n": 1, "pair": (1, ExactSum.of([0.5])), "counts": np.array([1, 2]), "rows": [np.array([1])]}
    add(totals, {"n": 2, "pair": (3, ExactSum.of([0.25])), "counts": np.array([1, 1, 1]), "rows": [np.array([2])]})
    assert totals["n"] == 3 and totals["counts"].tolist() == [2, 3, 1] and len(totals["rows"]) == 2
    assert totals["pair"] == (4, ExactSum.of([0.75]))
