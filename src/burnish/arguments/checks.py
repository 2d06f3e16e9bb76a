"""Settings that contradict each other, refused before anything is computed."""

from __future__ import annotations

import logging
from typing import Any

from burnish.core.errors import SettingError

from .derive import compares_evaluations
from .directions import KNOWN, direction_of
from .fields.every import EveryField

logger = logging.getLogger(__name__)

EXCLUSIVE = (("fp16", "bf16"), ("fp16_full_eval", "bf16_full_eval"))
RHYTHMS = (("logging_strategy", "logging_steps"), ("eval_strategy", "eval_steps"), ("save_strategy", "save_steps"))
NEED_WORKERS = ("dataloader_prefetch_factor", "dataloader_persistent_workers")


def check(args: EveryField) -> None:
    """Raises `SettingError` naming the settings that contradict each other, with their values."""
    for one, other in EXCLUSIVE:
        if getattr(args, one) and getattr(args, other):
            raise SettingError(f"{_shown(args, one, other)} contradict each other. Set one of them.")
    for strategy, steps in RHYTHMS:
        if getattr(args, strategy) == "steps" and getattr(args, steps) == 0:
            raise SettingError(f"{_shown(args, strategy, steps)}: set `{steps}` above 0, or `{strategy}` to 'no'.")
    for name in NEED_WORKERS:
        if getattr(args, name) and args.dataloader_num_workers == 0:
            raise SettingError(f"{_shown(args, name, 'dataloader_num_workers')}: it needs at least one worker.")
    if args.packing_length is not None and not args.packing:
        raise SettingError(f"{_shown(args, 'packing_length', 'packing')}: a length of bins needs `packing=True`.")
    if args.packing and args.train_sampling_strategy == "group_by_length":
        raise SettingError(
            f"{_shown(args, 'packing', 'train_sampling_strategy')}: bins have all the same length. Set one of them."
        )
    if args.max_steps < 1 and args.num_train_epochs < 0:
        raise SettingError(f"{_shown(args, 'num_train_epochs', 'max_steps')}: set one of them above 0.")
    if args.fit_schedule_to_max_time and args.max_time is None:
        raise SettingError("`fit_schedule_to_max_time=True` fits the schedule to `max_time`. Set it, such as '2h'.")
    _check_in_backward(args)
    _check_kept(args)
    _check_best(args)


def _check_in_backward(args: EveryField) -> None:
    """Nothing that must know all gradients before the first weight is updated."""
    if not args.optim_in_backward:
        return
    if args.max_grad_norm > 0:
        raise SettingError(
            f"{_shown(args, 'optim_in_backward', 'max_grad_norm')}: clipping needs the norm of all gradients before "
            "the first update. Set `max_grad_norm=0`, which clips nothing; the norm is logged all the same."
        )
    if args.fp16:
        raise SettingError(
            f"{_shown(args, 'optim_in_backward', 'fp16')}: the loss scale is lowered, and the step left out, when any "
            "gradient overflows, and by then weights have been updated. Set `bf16=True`, or neither."
        )
    if args.nonfinite_policy == "skip":
        raise SettingError(
            f"{_shown(args, 'optim_in_backward', 'nonfinite_policy')}: a step cannot be left out when a gradient turns "
            "out not to be finite after other weights were updated. Set `nonfinite_policy` to 'stop' or 'ignore'."
        )
    options = args.gradient_checkpointing_kwargs
    if args.gradient_checkpointing and isinstance(options, dict) and options.get("use_reentrant"):
        raise SettingError(
            "`optim_in_backward=True` and `gradient_checkpointing_kwargs` with 'use_reentrant': it takes a backward "
            "pass of its own for each part, so a gradient is not complete when it arrives. Leave 'use_reentrant' out."
        )


def _check_kept(args: EveryField) -> None:
    """No limit that what is to be kept exceeds."""
    last, best, total = args.keep_last or 0, args.keep_best or 0, args.save_total_limit
    if total is not None and last + best > total:
        names = [name for name in ("keep_last", "keep_best", "save_total_limit") if getattr(args, name)]
        raise SettingError(
            f"{_shown(args, *names)}: the limit is below what is to be kept. Set `save_total_limit` to {last + best} "
            "or more, or leave it out."
        )


def _check_best(args: EveryField) -> None:
    """The best evaluation can be told, and is saved."""
    if not compares_evaluations(args):
        return
    asking = _asking(args)
    if args.eval_strategy == "no":
        raise SettingError(f"{_shown(args, asking, 'eval_strategy')}: set `eval_strategy` to 'steps' or 'epoch'.")
    if args.load_best_model_at_end and args.save_strategy not in ("best", args.eval_strategy):
        raise SettingError(
            f"{_shown(args, 'load_best_model_at_end', 'eval_strategy', 'save_strategy')}: set `save_strategy` to "
            f"'best' or {str(args.eval_strategy)!r}, so that what is evaluated is also saved."
        )
    if args.greater_is_better is None:
        raise SettingError(
            f"{_shown(args, asking, 'metric_for_best_model')}: the name does not say whether a higher value is better. "
            f"Set `greater_is_better` to True or False. {KNOWN}"
        )
    _mention_direction(args)


def _mention_direction(args: EveryField) -> None:
    usual = direction_of(args.metric_for_best_model or "")
    if usual is not None and usual != args.greater_is_better:
        logger.warning(
            "%s: taken as given, though a %s value of this metric is usually better.",
            _shown(args, "metric_for_best_model", "greater_is_better"),
            "higher" if usual else "lower",
        )


def _asking(args: EveryField) -> str:
    """The setting for which evaluations are compared."""
    if args.load_best_model_at_end:
        return "load_best_model_at_end"
    if args.keep_best:
        return "keep_best"
    return "save_strategy" if args.save_strategy == "best" else "lr_scheduler_type"


def _shown(args: EveryField, *names: str) -> str:
    """ "`fp16=True` and `bf16=True`" """
    return " and ".join(f"`{name}={_plain(getattr(args, name))!r}`" for name in names)


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)
