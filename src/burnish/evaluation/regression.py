"""Metrics of numbers: errors, correlations, the share of variance. Several numbers a row: the mean over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from .formula import Formula
from .ranking import ranks
from .reading import Array, Reading
from .totals import ExactSum, Totals, rounded


def errors(reading: Reading, predictions: Any, labels: Any) -> Totals:
    """Sums of squared and of absolute errors."""
    found, truth = reading.values(predictions, labels)
    gaps = found - truth
    return {"squared": ExactSum.of(gaps**2), "absolute": ExactSum.of(np.abs(gaps)), "values": gaps.size}


def moments(reading: Reading, predictions: Any, labels: Any) -> Totals:
    """Sums of predictions x and labels y and of their products, each for every value of a row. Of float32 numbers the
    products are exact, so that nothing is lost where they are far from 0 and close together."""
    return _moments(*reading.values(predictions, labels))


def _moments(x: Array, y: Array) -> Totals:
    products = {"x": x, "y": y, "xx": x * x, "yy": y * y, "xy": x * y, "gaps": (x - y) ** 2}
    return {"rows": len(x), **{name: tuple(map(ExactSum.of, value.T)) for name, value in products.items()}}


def all_values(reading: Reading, predictions: Any, labels: Any) -> Totals:
    found, truth = reading.values(predictions, labels)
    return {"found": [found], "truth": [truth]}


def r2(totals: Mapping[str, Any]) -> float:
    """The share of the variance of the labels that is explained; NaN where they are constant."""

    def of_value(sums: Callable[[str], Fraction], rows: int) -> float:
        spread = sums("yy") * rows - sums("y") ** 2
        return 1 - rounded(sums("gaps") * rows / spread) if spread > 0 else math.nan

    return _mean_over_values(totals, of_value)


def pearson(totals: Mapping[str, Any]) -> float:
    """Pearson's correlation; NaN where either side is constant."""

    def of_value(sums: Callable[[str], Fraction], rows: int) -> float:
        together = sums("xy") * rows - sums("x") * sums("y")
        spread = (sums("xx") * rows - sums("x") ** 2) * (sums("yy") * rows - sums("y") ** 2)
        if spread <= 0:
            return math.nan
        return math.copysign(math.sqrt(rounded(together**2 / spread)), together)

    return _mean_over_values(totals, of_value)


def spearman(totals: Mapping[str, Any]) -> float:
    """Pearson's correlation of the ranks; NaN where either side is constant or has a NaN."""
    found, truth = (np.concatenate(totals[side]).T for side in ("found", "truth"))
    return pearson(_moments(*(np.stack([ranks(values) for values in side], 1) for side in (found, truth))))


def _mean_over_values(totals: Mapping[str, Any], of_value: Callable[[Callable[[str], Fraction], int], float]) -> float:
    parts = ("x", "y", "xx", "yy", "xy", "gaps")
    if any(one.nonfinite != 0.0 for name in parts for one in totals[name]):
        return math.nan
    found = []
    for value in range(len(totals["x"])):
        sums = {name: totals[name][value].exact for name in parts}
        found.append(of_value(sums.__getitem__, totals["rows"]))
    return float(np.mean(found))


FORMULAS = {
    "mse": Formula(errors, lambda totals: totals["squared"].over(totals["values"]), False),
    "rmse": Formula(errors, lambda totals: math.sqrt(totals["squared"].over(totals["values"])), False),
    "mae": Formula(errors, lambda totals: totals["absolute"].over(totals["values"]), False),
    "r2": Formula(moments, r2, True),
    "pearson": Formula(moments, pearson, True),
    "spearman": Formula(all_values, spearman, True),
}
