"""What a user has replaced, seen from the trainer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from burnish.trainer import Trainer


def overridden(trainer: Trainer, method: str) -> bool:
    """Whether a user has replaced a method of the trainer, in a subclass or on the object."""
    if method in vars(trainer):
        return True
    owner = next(kind for kind in type(trainer).__mro__ if method in vars(kind))
    found = vars(owner)[method]  # a method of ours may have been exchanged on our own class
    return not (_is_ours(owner) and _is_ours(found)) or hasattr(found, "__wrapped__")


def _is_ours(definition: Any) -> bool:
    return str(getattr(definition, "__module__", "")).partition(".")[0] == "burnish"


def takes(function: Callable[..., Any], argument: str) -> bool:
    """Whether a user's function can be given this keyword."""
    parameters = inspect.signature(function).parameters
    return argument in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def has_own_loss(trainer: Trainer) -> bool:
    """Whether the user says how the loss of a batch is computed."""
    own = ("compute_loss", "training_step")
    return trainer.compute_loss_func is not None or any(overridden(trainer, method) for method in own)


def needs_argument(function: Callable[..., Any]) -> bool:
    """Whether a user's function cannot be called without an argument."""
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return any(p.kind in by_position and p.default is p.empty for p in parameters)
