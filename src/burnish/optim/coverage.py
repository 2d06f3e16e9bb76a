"""Whether an optimizer moves the weights of the model that is trained."""

from __future__ import annotations

import torch
from torch import nn

from burnish.core.errors import SettingError


def check_moves(optimizer: torch.optim.Optimizer, model: nn.Module, scales_loss: bool = False) -> None:
    """Refuses an optimizer of other weights than the model's: it would train nothing.

    Args:
        scales_loss: whether gradients are made larger for float16, which float16 weights have no room for.

    Raises:
        SettingError: no trainable weight of the model is among the optimizer's, or some are float16 where the loss is
            scaled.
    """
    held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    moved = [name for name, weight in model.named_parameters() if weight.requires_grad and id(weight) in held]
    if not moved:
        raise SettingError(
            f"The optimizer {type(optimizer).__name__} holds no trainable weight of the {type(model).__name__} that is "
            "trained, so nothing would change. Make it of model.parameters() after the model is complete (adapters "
            "added, embeddings resized)."
        )
    halves = [name for name, weight in model.named_parameters() if weight.requires_grad and weight.dtype == torch.half]
    if scales_loss and halves:
        raise SettingError(
            f"fp16=True needs float32 weights, and `{halves[0]}` is float16: updates would be lost in rounding. Load "
            "the model with dtype=torch.float32; fp16=True then computes in float16 by itself."
        )
