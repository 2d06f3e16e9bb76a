"""The number type in which losses are computed."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field
from typing import Any

import torch

logger = logging.getLogger(__name__)

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
    _told: bool = field(init=False, default=False, repr=False)

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

    def judged(self, grad_norm: torch.Tensor) -> torch.Tensor:
        """The norm of a step's gradients; of gradients that the loss scale made too large for float16, the largest
        number there is. Such a step is left out and the scale halved, as often as it takes; a scale below 1 makes
        nothing larger, and what is not finite then is so by itself. In float16 the host reads the norm of each step.
        """
        if self.scaler is None or bool(torch.isfinite(grad_norm)) or self.scaler.get_scale() < 1:
            return grad_norm
        if not self._told:
            logger.warning(
                "The gradients overflowed in float16 at a loss scale of %g: the step is left out and the scale halved. "
                "This is usual in the first steps and not said again.",
                self.scaler.get_scale(),
            )
            self._told = True
        most = torch.finfo(grad_norm.dtype).max
        return torch.nan_to_num(grad_norm, nan=most, posinf=most)

    def step(self, optimizer: torch.optim.Optimizer, apply: torch.Tensor) -> None:
        """One step unless `apply` is False or a scaled gradient overflowed; then the scale is lowered instead."""
        assert self.scaler is not None
        if bool(apply):
            self.scaler.step(optimizer)
        self.scaler.update()
