"""Collating with a seed for each row, so that what is drawn for a row does not depend on the rows beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

from .collator_facts import masks_tokens
from .columns import KeepColumns
from .language_modeling import DataCollatorForLanguageModeling

CollateRows = Callable[[list[Any], Sequence[int]], Any]
"""Examples, and a seed of 63 bits for each, to the keyword arguments of `forward`."""


def by_row(collator: Any) -> CollateRows | None:
    """How a collator collates rows with a seed for each; None where it draws nothing, or draws for a batch as a whole.

    Known of the collators of burnish and of transformers that mask single tokens. Those of transformers draw for a
    batch; here their rows are masked by ours, with their settings.
    """
    if isinstance(collator, KeepColumns):
        of_rows = by_row(collator.collator)
        return None if of_rows is None else replace(collator, collator=of_rows)
    if not masks_tokens(collator):
        return None
    return collator.with_seeds if isinstance(collator, DataCollatorForLanguageModeling) else partial(_as_ours, collator)


def _as_ours(collator: Any, examples: list[Any], seeds: Sequence[int]) -> Any:
    """Settings are read each time: a callback may change them in the middle of a run."""
    names = [field.name for field in fields(DataCollatorForLanguageModeling)]
    settings = {name: getattr(collator, name) for name in names if hasattr(collator, name)}
    return DataCollatorForLanguageModeling(**settings).with_seeds(examples, seeds)
