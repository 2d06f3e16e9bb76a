"""What a metric is: totals of a batch that add up, and a value made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .reading import Reading
from .totals import Totals

TotalsOf = Callable[[Reading, Any, Any], Totals]
"""(how to read, predictions, labels) of a batch to its totals."""


@dataclass(frozen=True)
class Formula:
    """A metric: the values that it gives follow from totals, and these are sums over rows."""

    totals: TotalsOf
    value: Callable[[Mapping[str, Any]], Any]
    """A number, a list, or several numbers by name."""
    greater_is_better: bool | None
    """None where a value is no single number."""
