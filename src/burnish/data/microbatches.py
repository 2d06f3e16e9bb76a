"""Cutting the examples of a step into micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """How much goes through the model at once.

    Args:
        tokens: positions of a micro-batch at the most; a longer row goes alone.
        call_cost: what one more micro-batch costs, in positions: the price of a pass over the weights and of its
            Python. Splitting pays when it saves more padding than this.
        rows: rows of a micro-batch at the most, or None.
        padding_costs: positions are rows × longest row; False where padding is not computed, and positions are tokens.
    """

    tokens: int
    call_cost: int
    rows: int | None = None
    padding_costs: bool = True

    def positions(self, descending: Sequence[int], start: int, end: int) -> int:
        """Positions that examples `start` to `end` make together; `descending` are all lengths, longest first."""
        return (end - start) * descending[start] if self.padding_costs else sum(descending[start:end])

    def allows(self, descending: Sequence[int], start: int, end: int) -> bool:
        """Whether these examples may go through the model together."""
        fits = end - start <= (self.rows or end)
        return fits and (end - start == 1 or self.positions(descending, start, end) <= self.tokens)


def cut(lengths: Sequence[int], budget: Budget) -> list[list[int]]:
    """Groups of example numbers, together every example once, that cost the least.

    Examples are taken from the longest to the shortest, so that each group pads to its first. Among all ways of
    cutting that order within the budget, the one with the lowest sum of (positions + call_cost) is found by dynamic
    programming over the position of the last cut, in time (examples × rows of a group). Ties are broken by position,
    so that equal lengths always give equal groups.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    descending = [lengths[i] for i in order]
    even = not budget.padding_costs or descending[:1] == descending[-1:]
    if order and even and budget.allows(descending, 0, len(order)):
        return [order]  # nothing is saved by cutting
    cost = [0] * (len(order) + 1)
    start_of = [0] * (len(order) + 1)
    for end in range(1, len(order) + 1):
        cost[end], start_of[end] = min(
            (cost[start] + budget.positions(descending, start, end) + budget.call_cost, start)
            for start in _starts(end, descending, budget)
        )
    groups = []
    end = len(order)
    while end > 0:
        groups.append(order[start_of[end] : end])
        end = start_of[end]
    return groups[::-1]


def filled(lengths: Sequence[int], budget: Budget) -> list[list[int]]:
    """Groups of example numbers, together every example once, each as full as the budget allows.

    Takes the examples from the longest to the shortest, ties by position. A group ends where the next example would not
    fit, or where another pass through the model is cheaper than the padding that has come together. In time (examples ×
    log examples): for a whole dataset, of which neighbours by length hardly differ, so that `cut` would gain nothing.
    """
    groups: list[list[int]] = []
    longest = tokens = 0
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        size = len(groups[-1]) + 1 if groups else 1
        positions = size * longest if budget.padding_costs else tokens + lengths[i]
        padding = positions - tokens - lengths[i]
        fits = positions <= budget.tokens and size <= (budget.rows or size) and padding <= budget.call_cost
        if groups and fits:
            groups[-1].append(i)
            tokens += lengths[i]
        else:
            groups.append([i])
            longest = tokens = lengths[i]
    return groups


def _starts(end: int, descending: Sequence[int], budget: Budget) -> range:
    """Where a group that ends before `end` may start: at its last example, or earlier while it fits."""
    start = end - 1
    while start > 0 and budget.allows(descending, start - 1, end):
        start -= 1
    return range(start, end)
