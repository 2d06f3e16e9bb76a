"""The loss of extractive question answering: where an answer starts and ends.

The models' own loss takes the softmax over padding too, so that it changes with the length a batch is padded to. Here
padding is no candidate, and the loss of a row is what the row has alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from burnish.core.types import IGNORED_LABEL, Inputs

TARGETS = ("start_positions", "end_positions")


def span_loss(outputs: Any, inputs: Inputs) -> torch.Tensor | None:
    """Mean cross-entropy of start and end positions, over those that lie within their row; None where `inputs` or
    `outputs` are not of that kind.

    Args:
        outputs: has `start_logits` and `end_logits`, both (batch, length).
        inputs: has `start_positions` and `end_positions`, both (batch,) or (batch, 1), and maybe `attention_mask`
            (batch, length).
    """
    parts = (getattr(outputs, name, None) for name in ("start_logits", "end_logits"))
    logits = [part for part in parts if isinstance(part, torch.Tensor) and part.dim() == 2]
    if len(logits) != 2:
        return None
    if any(not isinstance(inputs.get(name), torch.Tensor) for name in TARGETS):
        return None
    both = torch.cat(logits).float()  # (2 × batch, length)
    positions = torch.cat([inputs[name].reshape(-1) for name in TARGETS])  # (2 × batch,)
    mask = inputs.get("attention_mask")
    attended = torch.ones_like(both, dtype=torch.bool) if mask is None else mask.bool().repeat(2, 1)
    within = (positions >= 0) & (positions < both.shape[1])
    within &= attended.gather(1, positions.clamp(0, both.shape[1] - 1)[:, None]).squeeze(1)
    targets = torch.where(within, positions, torch.full_like(positions, IGNORED_LABEL))
    scores = both.masked_fill(~attended, torch.finfo(both.dtype).min)
    return functional.cross_entropy(scores, targets, ignore_index=IGNORED_LABEL)
