"""Arguments of the trainer's constructor that are of another kind than they must be."""

from __future__ import annotations

from typing import Any

import torch

from burnish.core.errors import SettingError


def pair_of(optimizers: Any) -> tuple[torch.optim.Optimizer | None, Any]:
    """An optimizer and a scheduler, either of which may be None. Raises `SettingError` for one of them alone."""
    if optimizers is None:
        return None, None
    if isinstance(optimizers, (tuple, list)) and len(optimizers) == 2:
        return optimizers[0], optimizers[1]
    raise SettingError(
        f"optimizers={optimizers.__class__.__name__} is no pair of an optimizer and a scheduler. Pass "
        "optimizers=(optimizer, scheduler); None stands for one that burnish makes, as in (optimizer, None)."
    )


def list_of(callbacks: Any) -> list[Any]:
    """Callbacks in a list. Raises `SettingError` for one outside of a list."""
    if callbacks is None:
        return []
    if isinstance(callbacks, (list, tuple)):
        return list(callbacks)
    name = callbacks.__name__ if isinstance(callbacks, type) else type(callbacks).__name__
    raise SettingError(f"callbacks must be a list, and this is {name} alone. Pass callbacks=[{name}(…)].")


def callable_or_none(collator: Any) -> Any:
    """A data collator. Raises `SettingError` for what cannot be called."""
    if collator is None or callable(collator):
        return collator
    raise SettingError(
        f"data_collator={collator!r:.60} cannot be called. It must be a function of a list of rows, or an object such "
        "as DataCollatorWithPadding(tokenizer)."
    )
