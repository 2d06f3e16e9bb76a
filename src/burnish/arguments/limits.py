"""The smallest and largest value of each number, and which numbers count steps."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from burnish.core.errors import SettingError


class Limit(NamedTuple):
    lowest: float
    highest: float = math.inf
    below: bool = False
    """Whether `highest` itself is too large."""
    above: bool = False
    """Whether `lowest` itself is too small."""


NOT_NEGATIVE = Limit(0)
POSITIVE = Limit(1)
SHARE = Limit(0, 1)
DECAY = Limit(0, 1, below=True)
ABOVE_ZERO = Limit(0, above=True)

LIMITS = {
    "learning_rate": NOT_NEGATIVE,
    "warmup_steps": NOT_NEGATIVE,
    "weight_decay": NOT_NEGATIVE,
    "adam_beta1": DECAY,
    "adam_beta2": DECAY,
    "adam_epsilon": NOT_NEGATIVE,
    "max_grad_norm": NOT_NEGATIVE,
    "label_smoothing_factor": SHARE,
    "neftune_noise_alpha": NOT_NEGATIVE,
    "per_device_train_batch_size": POSITIVE,
    "per_device_eval_batch_size": POSITIVE,
    "gradient_accumulation_steps": POSITIVE,
    "token_budget": POSITIVE,
    "packing_length": POSITIVE,
    "seed": NOT_NEGATIVE,
    "data_seed": NOT_NEGATIVE,
    "logging_steps": NOT_NEGATIVE,
    "eval_steps": NOT_NEGATIVE,
    "save_steps": NOT_NEGATIVE,
    "save_minutes": ABOVE_ZERO,
    "keep_last": POSITIVE,
    "keep_best": POSITIVE,
    "keep_every_steps": POSITIVE,
    "keep_every_minutes": ABOVE_ZERO,
    "eval_delay": NOT_NEGATIVE,
    "eval_accumulation_steps": POSITIVE,
    "torch_empty_cache_steps": POSITIVE,
    "dataloader_num_workers": NOT_NEGATIVE,
    "dataloader_prefetch_factor": POSITIVE,
    "ddp_timeout": POSITIVE,
    "hang_timeout": NOT_NEGATIVE,
    "ddp_bucket_cap_mb": POSITIVE,
    "generation_max_length": POSITIVE,
    "generation_num_beams": POSITIVE,
    "generation_max_rows": NOT_NEGATIVE,
    "generation_texts_shown": NOT_NEGATIVE,
}

STEPS_OR_SHARE = ("warmup_steps", "logging_steps", "eval_steps", "save_steps")
"""Below 1 a share of the run; from 1 on a number of steps, which is whole."""

FINITE = ("learning_rate", "num_train_epochs", "weight_decay", "adam_epsilon", "neftune_noise_alpha")
"""Numbers with which an infinite one computes nothing; an infinite `max_grad_norm` clips nothing, and measures."""


def within_limits(name: str, value: Any) -> Any:
    """The value, a number of steps as an int. Raises `SettingError` naming the field, the value and the limit."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if value == math.inf and name in FINITE:
        raise SettingError(f"`{name}` = {value!r}: expected a finite number.")
    limit = LIMITS.get(name)
    if limit is not None and not _fits(value, limit):
        raise SettingError(f"`{name}` = {value!r}: expected {_words(limit)}.")
    if name == "max_steps" and value != -1 and value < 1:
        raise SettingError(f"`max_steps` = {value!r}: expected 1 or more, or -1 for a run of `num_train_epochs`.")
    if name in STEPS_OR_SHARE and value >= 1:
        return _whole(name, value)
    return value


def _fits(value: float, limit: Limit) -> bool:
    at_an_end = (limit.below and value == limit.highest) or (limit.above and value == limit.lowest)
    return limit.lowest <= value <= limit.highest and not at_an_end


def _words(limit: Limit) -> str:
    if limit.highest == math.inf:
        return f"more than {limit.lowest:g}" if limit.above else f"{limit.lowest:g} or more"
    return f"a number from {limit.lowest:g} to {'below ' if limit.below else ''}{limit.highest:g}"


def _whole(name: str, value: float) -> int:
    if value == math.inf or value != int(value):
        raise SettingError(
            f"`{name}` = {value!r}: from 1 on it is a number of steps and must be whole; below 1 a share."
        )
    return int(value)
