"""The number type in which losses are computed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import torch

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Precision:
    """float32, or autocast to bfloat16 or float16; float16 comes with a loss scale (Micikevicius et al., 2018).

    Args:
        name: "no", "bf16" or "fp16".
        device_type: "cpu", "cuda" or "mps".
    """

    name: str = "no"
    device_type: str = "cpu"
    scaler: torch.amp.GradScaler | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.name == "fp16":
            self.scaler = torch.amp.GradScaler(self.device_type)

    def autocast(self, device: torch.device, name: str | None = None) -> contextlib.AbstractContextManager[Any]:
        """Mixed precision of this kind, or of another by name."""
        name = name or self.name
        if name not in _TYPES:
            return contextlib.nullcontext()
        return torch.autocast(device.type, dtype=_TYPES[name])

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        return loss if self.scaler is None else self.scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes the loss scale out of the gradients."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer, apply: torch.Tensor) -> None:
        """One step unless `apply` is False or a scaled gradient overflowed; then the scale is lowered instead."""
        assert self.scaler is not None
        if bool(apply):
            self.scaler.step(optimizer)
        self.scaler.update()
