"""Where the value of each setting came from."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Iterable
from typing import Any

from burnish.core.errors import SettingError
from burnish.core.secrets import hidden, is_secret

from .base import SETTLED
from .derive import TWINS, derive
from .training_arguments import TrainingArguments

DEFAULT, ARGUMENT, DERIVED = "default", "argument", "derived"


def with_origins(args: TrainingArguments) -> dict[str, dict[str, Any]]:
    """Every field as {"value", "origin"}, values as JSON has them; without tokens."""
    found = origins(args)
    return {
        name: {"value": hidden(value), "origin": found[name]}
        for name, value in args.to_dict().items()
        if not is_secret(name)
    }


def origins(args: TrainingArguments) -> dict[str, str]:
    """For each field "default" (it is as in a run with no settings), "derived" (it would be the same had nobody set it,
    because of other settings) or "argument"."""
    names = [field.name for field in dataclasses.fields(args)]
    untouched = _without(args, names)
    return {name: _origin(args, name, untouched) for name in names}


def _origin(args: TrainingArguments, name: str, untouched: TrainingArguments | None) -> str:
    value = getattr(args, name)
    if untouched is not None and value == getattr(untouched, name):
        return DEFAULT
    other = _without(args, [name, *([TWINS[name]] if name in TWINS else [])])
    return DERIVED if other is not None and value == getattr(other, name) else ARGUMENT


def _without(args: TrainingArguments, names: Iterable[str]) -> TrainingArguments | None:
    """The settings with these fields as nobody set them; None where that contradicts the others."""
    other = copy.copy(args)
    fields = {field.name: field for field in dataclasses.fields(args)}
    vars(other).update({SETTLED: False, **{name: _default(fields[name]) for name in names}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            derive(other)
        except (SettingError, TypeError):  # a user's own field may have no default
            return None
    return other


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default
