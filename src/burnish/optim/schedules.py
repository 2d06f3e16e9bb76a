"""Schedules as pure functions of the step: what the learning rate is multiplied by.

Each agrees with the schedule of the same name in transformers at every step. Step 0 is the first update.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from burnish.core.errors import SettingError, did_you_mean

from .options import checked_options, options_of

Multiplier = Callable[[int], float]
"""From the number of updates made to the factor on the learning rate of the next one."""


@dataclass(frozen=True)
class Span:
    """The run that a schedule is laid over."""

    warmup_steps: int
    total_steps: int
    learning_rate: float | None = None
    """Peak rate; schedules that end at an absolute rate need it."""

    def warmed(self, after: Multiplier) -> Multiplier:
        """Rises linearly from 0 to 1 over the warmup, then goes on as `after`."""
        warmup = self.warmup_steps
        return lambda step: step / warmup if step < warmup else after(step)

    def done(self, step: int) -> float:
        """Share of the steps after the warmup that are done: 0 at its end, 1 at the end of the run."""
        return (step - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps)

    def share_of_peak(self, rate: float, option: str) -> float:
        """An absolute rate as a factor on the peak rate."""
        if not self.learning_rate:
            raise SettingError(f"{option} is an absolute rate, so the schedule needs a learning_rate above 0.")
        return rate / self.learning_rate


def multiplier(
    name: str, *, warmup_steps: int, total_steps: int, learning_rate: float | None = None, **kwargs: Any
) -> Multiplier:
    """The schedule `name` as a function of the step.

    Args:
        name: one of `SCHEDULES`.
        warmup_steps: steps in which the rate rises; no schedule but "constant" ignores them.
        total_steps: steps of the whole run, warmup included.
        learning_rate: peak rate, for options that are absolute rates (`lr_end`, `min_lr`).
        kwargs: options of this schedule, such as ``num_cycles=2``.

    Raises:
        SettingError: the schedule is unknown, or an option is unknown, missing, or of the wrong kind.
    """
    if name not in SCHEDULES:
        raise SettingError(
            f"lr_scheduler_type {name!r} is unknown. Known are: {', '.join(SCHEDULES)}.{did_you_mean(name, SCHEDULES)}"
        )
    schedule = SCHEDULES[name]
    taken = options_of(schedule, without=("span",))
    options = checked_options(kwargs, taken, "lr_scheduler_kwargs", f"the {name!r} schedule")
    return schedule(Span(warmup_steps, total_steps, learning_rate), **options)


# ---------------------------------------------------------------- the schedules


def _constant(span: Span) -> Multiplier:
    """1 throughout, without a warmup."""
    return lambda step: 1.0


def _constant_with_warmup(span: Span) -> Multiplier:
    return span.warmed(lambda step: 1.0)


def _linear(span: Span) -> Multiplier:
    """Falls on a straight line from 1 to 0 at the end of the run."""
    return span.warmed(lambda step: max(0.0, 1 - span.done(step)))


def _cosine(span: Span, *, num_cycles: float = 0.5) -> Multiplier:
    """Follows `num_cycles` waves of a cosine; half a wave falls from 1 to 0 (SGDR, arXiv 1608.03983, eq. 5)."""
    return span.warmed(lambda step: max(0.0, _wave(num_cycles * span.done(step))))


def _cosine_with_restarts(span: Span, *, num_cycles: int = 1) -> Multiplier:
    """Falls from 1 to 0 by half a cosine wave, `num_cycles` times, and stays at 0 after the run."""
    return span.warmed(lambda step: 0.0 if span.done(step) >= 1 else _wave((num_cycles * span.done(step)) % 1 / 2))


def _polynomial(span: Span, *, lr_end: float = 1e-7, power: float = 1.0) -> Multiplier:
    """Falls from the peak rate to the rate `lr_end` as (share of steps left) ** `power`."""
    floor = span.share_of_peak(lr_end, "lr_end")
    if floor >= 1:
        raise SettingError(f"lr_end={lr_end} must be below the learning_rate, {span.learning_rate}.")

    def falling(step: int) -> float:
        left = 1 - span.done(step)
        return floor if step >= span.total_steps else floor + (1 - floor) * left**power

    return span.warmed(falling)


def _inverse_sqrt(span: Span, *, timescale: int | None = None) -> Multiplier:
    """Falls as 1 / sqrt(1 + steps after the warmup / `timescale`); by default the warmup, or 10 000 without one."""
    scale = timescale or span.warmup_steps or 10_000
    return span.warmed(lambda step: 1 / math.sqrt(1 + (step - span.warmup_steps) / scale))


def _cosine_with_min_lr(
    span: Span, *, num_cycles: float = 0.5, min_lr: float | None = None, min_lr_rate: float | None = None
) -> Multiplier:
    """A cosine that ends at the rate `min_lr`, or at the share `min_lr_rate` of the peak."""
    floor = _floor(span, min_lr, min_lr_rate)
    return span.warmed(lambda step: max(0.0, floor + (1 - floor) * _wave(num_cycles * span.done(step))))


def _cosine_warmup_with_min_lr(
    span: Span,
    *,
    num_cycles: float = 0.5,
    min_lr: float | None = None,
    min_lr_rate: float | None = None,
    warmup_lr_rate: float | None = None,
) -> Multiplier:
    """The same one step ahead: no update is made at rate 0, and the last one is made at the floor.

    The warmup rises from the share `warmup_lr_rate` of the peak, by default 1 / warmup steps.
    """
    floor = _floor(span, min_lr, min_lr_rate)
    warmup = span.warmup_steps

    def factor(step: int) -> float:
        if step >= warmup:
            return max(0.0, floor + (1 - floor) * _wave(num_cycles * span.done(step + 1)))
        if warmup_lr_rate is None:
            return (step + 1) / warmup
        return warmup_lr_rate + (1 - warmup_lr_rate) * step / max(1, warmup - 1)

    return factor


def _warmup_stable_decay(
    span: Span,
    *,
    num_decay_steps: int,
    num_stable_steps: int | None = None,
    warmup_type: str = "linear",
    decay_type: str = "cosine",
    min_lr_ratio: float = 0.0,
    num_cycles: float = 0.5,
) -> Multiplier:
    """Rises from `min_lr_ratio` to 1, stays there, and falls back in the last `num_decay_steps` (arXiv 2404.06395).

    The types are "linear", "cosine" and "1-sqrt". With `num_stable_steps` the decay begins earlier than the end of the
    run asks for; what is left is made at `min_lr_ratio`.
    """
    rise = _shape("warmup_type", warmup_type, 0.5)
    fall = _shape("decay_type", decay_type, num_cycles)
    warmup = span.warmup_steps
    stable = span.total_steps - warmup - num_decay_steps if num_stable_steps is None else num_stable_steps
    if stable < 0:
        raise SettingError(
            f"num_decay_steps={num_decay_steps} and {warmup} warmup steps do not fit in a run of {span.total_steps} "
            "steps: lower num_decay_steps in lr_scheduler_kwargs, or warmup_steps."
        )

    def factor(step: int) -> float:
        if warmup <= step < warmup + stable:
            return 1.0
        if step >= warmup + stable + num_decay_steps:
            return min_lr_ratio
        shape = rise(1 - step / warmup) if step < warmup else fall((step - warmup - stable) / num_decay_steps)
        return max(0.0, min_lr_ratio + (1 - min_lr_ratio) * shape)

    return factor


def _wave(cycles: float) -> float:
    """A cosine wave between 1 (whole cycles) and 0 (half cycles)."""
    return 0.5 * (1 + math.cos(2 * math.pi * cycles))


def _shape(option: str, name: str, num_cycles: float) -> Callable[[float], float]:
    """A fall from 1 at 0 to 0 at 1; read backwards it is a rise."""
    shapes: dict[str, Callable[[float], float]] = {
        "linear": lambda done: 1 - done,
        "cosine": lambda done: _wave(num_cycles * done),
        "1-sqrt": lambda done: 1 - math.sqrt(done),
    }
    if name not in shapes:
        raise SettingError(
            f"{option}={name!r} is unknown; it is one of {', '.join(shapes)}.{did_you_mean(name, shapes)}"
        )
    return shapes[name]


def _floor(span: Span, min_lr: float | None, min_lr_rate: float | None) -> float:
    """The lowest factor, given as a rate or as a share of the peak."""
    if (min_lr is None) == (min_lr_rate is None):
        raise SettingError(
            "lr_scheduler_kwargs needs one of min_lr (a rate) and min_lr_rate (a share of the learning_rate), "
            f"not {'none' if min_lr is None else 'both'}."
        )
    return span.share_of_peak(min_lr, "min_lr") if min_lr is not None else float(min_lr_rate or 0.0)


SCHEDULES: dict[str, Callable[..., Multiplier]] = {
    "linear": _linear,
    "cosine": _cosine,
    "cosine_with_restarts": _cosine_with_restarts,
    "polynomial": _polynomial,
    "constant": _constant,
    "constant_with_warmup": _constant_with_warmup,
    "inverse_sqrt": _inverse_sqrt,
    "cosine_with_min_lr": _cosine_with_min_lr,
    "cosine_warmup_with_min_lr": _cosine_warmup_with_min_lr,
    "warmup_stable_decay": _warmup_stable_decay,
}
"""The schedules that depend on the step alone, by the names of transformers' `SchedulerType`."""
