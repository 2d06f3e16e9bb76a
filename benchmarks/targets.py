"""What burnish means to reach, as bounds on ratios to its peers in the same run, and whether a run did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

OURS = "burnish"
TIME = "cpu_seconds_per_step"

Medians = Mapping[str, Mapping[str, float]]
"""Library to measure to the median over rounds."""


@dataclass(frozen=True)
class Target:
    name: str
    value: Callable[[Medians], float]
    """Raises KeyError where a library or a measure that it needs is not there."""
    bound: float
    is_least: bool
    """The bound is the least that will do; else the most."""

    def verdict(self, medians: Medians) -> Verdict:
        try:
            value = self.value(medians)
        except KeyError as missing:
            return Verdict(f"{self.name}: not measured, {missing} is not there", None, self.bound, None)
        met = value >= self.bound if self.is_least else value <= self.bound
        side = "at least" if self.is_least else "at most"
        text = f"{self.name}: {value:.3g}, target {side} {self.bound:g}: {'met' if met else 'MISSED'}"
        return Verdict(text, value, self.bound, met)


@dataclass(frozen=True)
class Verdict:
    text: str
    value: float | None
    bound: float
    met: bool | None
    """None where it could not be measured."""


def best(medians: Medians, measure: str, peers: tuple[str, ...]) -> float:
    """The lowest of the peers named; of all that were run where none is."""
    return min(medians[peer][measure] for peer in peers or [name for name in medians if name != OURS])


def faster(least: float, *peers: str) -> Target:
    """Speed over the best peer."""
    whom = " and ".join(peers) or "the best peer"
    return Target(f"speed over {whom}", lambda m: best(m, TIME, peers) / m[OURS][TIME], least, is_least=True)


def overhead(most: float, over: str) -> Target:
    """What is added to the time of another, as a share of it."""
    return Target(f"overhead over {over}", lambda m: m[OURS][TIME] / m[over][TIME] - 1, most, is_least=False)


def share(measure: str, most: float, *peers: str) -> Target:
    """Ours as a share of the best peer's."""
    name = f"{measure} as a share of {' and '.join(peers) or 'the best peer'}"
    return Target(name, lambda m: m[OURS][measure] / best(m, measure, peers), most, is_least=False)


def own(measure: str, bound: float, is_least: bool) -> Target:
    """A figure that is compared with nobody's."""
    return Target(measure, lambda m: m[OURS][measure], bound, is_least)
