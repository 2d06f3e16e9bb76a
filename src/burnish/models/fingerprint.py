"""Whether two models have the same weights, told by a few numbers of each."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

from burnish.core.divided import whole
from burnish.core.zero_parts import shape_of

NUMBERS = 8
"""Numbers that are read of each weight, evenly spread over it."""


def fingerprint(model: nn.Module, device: torch.device | None = None) -> str | None:
    """12 hex digits that follow from the names, shapes and types of all weights, and `NUMBERS` of the values of each.

    One copy from the device; of a model that lies in parts, all processes call it. None for weights that cannot be read
    in this way (on no device, or spread over several).
    """
    digest = hashlib.sha256()
    values = []
    for name, weight in sorted(model.state_dict(keep_vars=True).items()):
        if not isinstance(weight, torch.Tensor):
            continue
        digest.update(f"{name} {tuple(shape_of(weight))} {weight.dtype}\n".encode())
        try:
            values.append(_some(whole(weight, device or weight.device)))
        except (RuntimeError, NotImplementedError):
            return None
    try:
        read = torch.cat(values).cpu() if values else torch.empty(0)
    except (RuntimeError, NotImplementedError):
        return None
    digest.update(read.numpy().tobytes())
    return digest.hexdigest()[:12]


def _some(weight: torch.Tensor) -> torch.Tensor:
    flat = weight.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // NUMBERS)][:NUMBERS].float()
