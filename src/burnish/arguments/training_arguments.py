"""All settings of a run, under the names that transformers has given them.

Where a field lives can be seen from its name: `fields/` has one file for each group. What is done with fields is here
in one place each: text for numbers (`values`), limits (`limits`), names of earlier releases (`old_names`), what follows
from other settings (`derive`), contradictions (`checks`), fields that do nothing yet (`without_effect`).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields
from typing import TypeVar

from .base import SETTLED, Settings
from .checks import check
from .derive import derive
from .fields.seq2seq import Seq2SeqFields
from .loading_in_parts import hold_configuration
from .processes import Processes
from .setters import Setters
from .texts import Texts, mask
from .without_effect import warn_about_fields_without_effect


@dataclass(repr=False)
class TrainingArguments(Settings, Texts, Setters, Processes):
    """The settings of a run. Differences from transformers 5: `logging_steps` is None (about 50 logs a run),
    `logging_first_step` is True, and there are the fields of `StepFields`.

    Any value may be given as text ("1e-4", "True"), also when it is assigned later. Names that transformers has had
    since 4.30 are translated with a `FutureWarning`.

    Raises:
        SettingError: for an unknown name, a value that a field cannot hold, and settings that contradict each other.
    """

    def __post_init__(self) -> None:
        _forget_masks(self)
        derive(self)
        check(self)
        warn_about_fields_without_effect(self)
        hold_configuration(self)
        setattr(self, SETTLED, True)


@dataclass(repr=False)
class Seq2SeqTrainingArguments(Seq2SeqFields, TrainingArguments):
    """The settings of a run whose evaluation may write text."""


AnyArguments = TypeVar("AnyArguments", bound=TrainingArguments)


def snapshot(args: AnyArguments) -> AnyArguments:
    """A copy as of now, which later changes to `args` do not reach: what a run is made from.

    Dicts and lists are copied too, other objects are shared. What was assigned since `args` was made is checked
    together once more.

    Raises:
        SettingError: where settings contradict each other by now.
    """
    taken = copy.copy(args)
    for name, value in vars(args).items():
        if isinstance(value, dict | list):
            vars(taken)[name] = copy.deepcopy(value)
    derive(taken)
    check(taken)
    return taken


def _forget_masks(args: TrainingArguments) -> None:
    """A mask that comes back from `to_dict` is no token."""
    for field in fields(args):
        if field.name.endswith("_token") and getattr(args, field.name) == mask(field.name):
            setattr(args, field.name, None)
