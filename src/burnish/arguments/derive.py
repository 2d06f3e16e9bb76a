"""What follows from the settings that were given: the values that nobody has to set."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from burnish.core.durations import seconds_of
from burnish.core.errors import SettingError

from .choices import DebugOption
from .directions import direction_of
from .fields.every import EveryField
from .launched import follow_launcher
from .sharding import config as sharding_config
from .sharding import derive_sharding
from .sharding import words as sharding_words

TWINS = {
    "activation_checkpointing": "gradient_checkpointing",
    "gradient_checkpointing": "activation_checkpointing",
    "activation_checkpointing_kwargs": "gradient_checkpointing_kwargs",
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
}
"""Two names of one setting."""

EVAL_STEPS = 500
"""Steps between two evaluations, where neither `eval_steps` nor `logging_steps` says."""

DERIVED_DIRECTION = "_derived_direction"
"""Attribute that is True while `greater_is_better` is known from the metric's name and was not given."""


def derive(args: EveryField) -> None:
    """Fills in what follows from other settings. Doing it twice changes nothing."""
    follow_launcher(args)
    args.output_dir = os.path.expanduser(args.output_dir or "trainer_output")
    _agree(args, "activation_checkpointing", False)
    _agree(args, "activation_checkpointing_kwargs", None)
    for name, in_one_form in ONE_FORM.items():
        vars(args)[name] = in_one_form(getattr(args, name))
    derive_sharding(args)
    if args.save_total_limit is not None and args.save_total_limit <= 0:
        args.save_total_limit = None
    if args.torch_compile_mode is not None or args.torch_compile_backend is not None:
        args.torch_compile = True
    if args.torch_compile and args.torch_compile_backend is None:
        args.torch_compile_backend = "inductor"
    _derive_evaluation(args)


def _derive_evaluation(args: EveryField) -> None:
    if args.eval_strategy != "no":
        args.do_eval = True
    if args.eval_strategy == "steps" and not args.eval_steps:
        args.eval_steps = args.logging_steps or EVAL_STEPS
    if args.metric_for_best_model is None and compares_evaluations(args):
        args.metric_for_best_model = "loss"
    if args.greater_is_better is None and args.metric_for_best_model is not None:
        derive_direction(args)


def compares_evaluations(args: EveryField) -> bool:
    """Whether the run asks which of two evaluations is better."""
    judging_schedule = args.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy")
    return args.load_best_model_at_end or args.save_strategy == "best" or bool(args.keep_best) or judging_schedule


def derive_direction(args: EveryField) -> None:
    """Sets `greater_is_better` from the metric's name; None where the name does not say."""
    metric = args.metric_for_best_model
    args.greater_is_better = None if metric is None else direction_of(metric)
    vars(args)[DERIVED_DIRECTION] = True


def follow(args: EveryField, name: str) -> None:
    """After `name` was assigned to finished arguments: keeps what follows from it true."""
    if name in TWINS:
        vars(args)[TWINS[name]] = getattr(args, name)
    elif name == "greater_is_better":
        vars(args)[DERIVED_DIRECTION] = False
    elif name == "metric_for_best_model" and vars(args).get(DERIVED_DIRECTION, args.greater_is_better is None):
        derive_direction(args)
    elif name in ONE_FORM:
        vars(args)[name] = ONE_FORM[name](getattr(args, name))


def _agree(args: EveryField, name: str, otherwise: Any) -> None:
    """Gives both names of one setting the value that one of them has."""
    ours, theirs = getattr(args, name), getattr(args, TWINS[name])
    if ours is not None and theirs is not None and ours != theirs:
        raise SettingError(
            f"`{name}={ours!r}` and `{TWINS[name]}={theirs!r}` are two names of one setting. Give both the same value, "
            "or only one of them."
        )
    value = next((given for given in (ours, theirs) if given is not None), otherwise)
    vars(args)[name] = vars(args)[TWINS[name]] = value


def trackers(given: Any) -> list[str]:
    """Names of trackers; ["all"] stays as it is, until someone looks for those that are installed."""
    return [name for name in _words(given) if name != "none"]


def counted_tokens(given: Any) -> str:
    """Which tokens are counted: "all", "non_padding" or "no". True and False mean all and no."""
    word = {"true": "all", "false": "no"}.get(str(given).lower(), given)
    if word not in ("all", "non_padding", "no"):
        raise SettingError(
            f"`include_num_input_tokens_seen` has no value {given!r}. There is: all, non_padding, no; True means all."
        )
    return str(word)


def debug_options(given: Any) -> list[DebugOption]:
    return [DebugOption(word) for word in _words(given)]


def _words(given: Any) -> list[str]:
    if isinstance(given, str):
        return [word for word in re.split(r"[,\s]+", given) if word]
    return [getattr(part, "value", part) for part in given or []]


def seconds(given: Any) -> float | None:
    """A length of time as a number of seconds."""
    return None if given is None or str(given).lower() in ("", "none") else seconds_of("max_time", given)


ONE_FORM: dict[str, Callable[[Any], Any]] = {
    "max_time": seconds,
    "report_to": trackers,
    "debug": debug_options,
    "include_num_input_tokens_seen": counted_tokens,
    "fsdp": sharding_words,
    "fsdp_config": sharding_config,
}
"""Fields that may be given in several forms, and what brings them into one."""
