"""Settings made for `transformers.Trainer`, taken over by name."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any

from burnish.core.errors import SettingError

from .training_arguments import Seq2SeqTrainingArguments, TrainingArguments

MIRRORED = {"gradient_checkpointing", "gradient_checkpointing_kwargs"}
"""Second names of a field, which transformers fills in by itself."""


def own_settings(args: Any) -> TrainingArguments:
    """Settings of ours: those given, the default ones for None, or those of transformers by name.

    Raises:
        SettingError: it is something else.
    """
    if args is None:
        return TrainingArguments(output_dir="tmp_trainer")
    if isinstance(args, TrainingArguments):
        return args
    if any(kind.__module__.startswith("transformers.training_args") for kind in type(args).__mro__):
        return from_transformers(args)
    raise SettingError(
        f"args must be a burnish.TrainingArguments, not a {type(args).__name__}: from burnish import TrainingArguments."
    )


def from_transformers(args: Any) -> TrainingArguments:
    """Our settings with what a `transformers.TrainingArguments` has set away from its defaults."""
    ours = Seq2SeqTrainingArguments if hasattr(args, "predict_with_generate") else TrainingArguments
    known = {field.name for field in fields(ours)}
    changed = {
        field.name: getattr(args, field.name)
        for field in fields(args)
        if field.name in known - MIRRORED and getattr(args, field.name) != _default(field)
    }
    derived = ("accelerator_config", "deepspeed_plugin", "local_rank", "debug", "disable_tqdm")
    return ours(**{name: value for name, value in changed.items() if name not in derived})


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else None
