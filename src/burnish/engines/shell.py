"""A model whose forward pass may be any computation with it.

An engine that wraps a model acts in the wrapper's forward pass. What a step computes is more than `model(**inputs)`:
losses that take the output layer apart, a user's own that calls the model twice. Around the shell, the wrapper sees all
of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Computation:
    """What is to be made of the model; handed to the shell, or to a wrapper around it, as the only argument."""

    function: Callable[[nn.Module], Any]


class Shell(nn.Module):
    """Calls the model, or hands it to a computation. Attributes that it does not have are those of the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.module = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], Computation):
            return args[0].function(self.module)
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Only called for what is no attribute of the object itself."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


def nothing(model: nn.Module) -> torch.Tensor:
    """A loss of 0 that has a gradient of 0 for every trainable weight, and computes nothing of the model."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    return torch.stack([weight.flatten()[:1].sum().float() for weight in weights]).sum() * 0


def seeing_through(accelerator: Any) -> Any:
    """An `accelerate.Accelerator` that takes the shell off, too, where it unwraps a model."""
    accelerator.unwrap_model = partial(_unwrapped_by, accelerator.unwrap_model)
    return accelerator


def _unwrapped_by(unwrap: Callable[..., Any], model: Any, *args: Any, **kwargs: Any) -> Any:
    found = unwrap(model, *args, **kwargs)
    return found.module if isinstance(found, Shell) else found
