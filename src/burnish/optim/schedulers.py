"""Schedules put on an optimizer: positioned at any step, or driven by a metric."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from burnish.core.errors import SettingError, did_you_mean

from .options import checked_options, options_of, parse_options
from .schedules import SCHEDULES, multiplier

METRIC_DRIVEN = ("reduce_lr_on_plateau", "greedy")
"""Schedules whose ``step`` takes the metric of an evaluation; their position is state, saved with a checkpoint."""


def make_scheduler(
    name: str,
    optimizer: Optimizer,
    *,
    warmup_steps: int,
    total_steps: int,
    kwargs: str | Mapping[str, Any] | None = None,
    step: int = 0,
) -> LRScheduler:
    """The schedule `name` on `optimizer`, whose rates are set at once to those of `step`.

    The peak rate of each group is its ``initial_lr`` where there is one, else its ``lr``. An optimizer state that is
    loaded afterwards brings its own rates along: call `move_to` then.

    Args:
        name: a name of transformers' `SchedulerType`.
        warmup_steps: steps in which the rate rises.
        total_steps: steps of the whole run, warmup included.
        kwargs: options of the schedule: a mapping, JSON, or ``"name=value,name=value"``.
        step: updates that are made already. Metric-driven schedules restore it from their state instead.

    Raises:
        SettingError: the schedule is unknown, or an option is unknown, missing, or of the wrong kind.
    """
    name = str(getattr(name, "value", name))
    options = parse_options(kwargs, "lr_scheduler_kwargs")
    if name in METRIC_DRIVEN:
        return _metric_driven(name, optimizer, options)
    if name not in SCHEDULES:
        known = (*SCHEDULES, *METRIC_DRIVEN)
        raise SettingError(
            f"lr_scheduler_type {name!r} is unknown. Known are: {', '.join(known)}.{did_you_mean(name, known)}"
        )
    peak = optimizer.defaults.get("lr")
    factor = multiplier(
        name,
        warmup_steps=warmup_steps,
        total_steps=total_steps,
        learning_rate=None if peak is None else float(peak),
        **options,
    )
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", group["lr"])
    return LambdaLR(optimizer, factor, last_epoch=step - 1)


def move_to(scheduler: LRScheduler, step: float) -> None:
    """Puts a schedule that is a function of the step, and the rates of its optimizer, at `step`.

    The rates are those of the settings that the schedule was made with, whatever rates an optimizer state that was
    loaded in between held; a step may lie between two. Any ``LambdaLR`` can be moved; a schedule of another class
    raises `SettingError`.
    """
    if not isinstance(scheduler, LambdaLR):
        raise SettingError(f"A {type(scheduler).__name__} has no rate for step {step} alone; load its state instead.")
    for group, peak in zip(scheduler.optimizer.param_groups, scheduler.base_lrs, strict=True):
        group["initial_lr"] = peak
    before: Any = step - 1  # torch says that it is whole, and asks it of nobody
    placed = LambdaLR(scheduler.optimizer, scheduler.lr_lambdas, last_epoch=before)
    scheduler.load_state_dict(placed.state_dict())


def needs_metric(scheduler: LRScheduler) -> bool:
    """Whether ``scheduler.step`` takes the metric of an evaluation instead of being called after every update."""
    return "metrics" in inspect.signature(scheduler.step).parameters


def _metric_driven(name: str, optimizer: Optimizer, options: dict[str, Any]) -> LRScheduler:
    if name == "reduce_lr_on_plateau":
        taken = options_of(ReduceLROnPlateau, without=("optimizer",))
        options = checked_options(options, taken, "lr_scheduler_kwargs", f"the {name!r} schedule")
        return ReduceLROnPlateau(optimizer, **options)
    from transformers import get_scheduler

    # Its class is not a public name, so its options are asked of an instance.
    taken = options_of(type(get_scheduler(name, optimizer)), without=("optimizer",))
    options = checked_options(options, taken, "lr_scheduler_kwargs", f"the {name!r} schedule")
    try:
        scheduler: LRScheduler = get_scheduler(name, optimizer, scheduler_specific_kwargs=options)
    except ValueError as error:
        raise SettingError(f"lr_scheduler_kwargs of the {name!r} schedule: {error}") from error
    return scheduler
