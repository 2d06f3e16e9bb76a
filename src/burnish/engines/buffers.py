"""Buffers that every process keeps whole, such as running statistics: those of the first process for all."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn


class SharedBuffers:
    """The buffers of a model that are to be the same on all processes.

    Args:
        every: all buffers, none, or (None) those that are part of the model's state: what else a buffer holds follows
            from the config.
    """

    def __init__(self, model: nn.Module, every: bool | None = None) -> None:
        self._buffers = [] if every is False else list(_buffers(model, bool(every)))

    def from_first(self) -> None:
        """Gives them the values of the first process; those of one type in one message."""
        for kind in dict.fromkeys(buffer.dtype for buffer in self._buffers):
            same = [buffer for buffer in self._buffers if buffer.dtype == kind]
            together = torch.cat([buffer.detach().flatten() for buffer in same])
            dist.broadcast(together, 0)
            for buffer, value in zip(same, together.split([buffer.numel() for buffer in same]), strict=True):
                buffer.copy_(value.view_as(buffer))


def _buffers(model: nn.Module, every: bool) -> Iterator[torch.Tensor]:
    state = {id(value) for value in model.state_dict(keep_vars=True).values()}
    for buffer in model.buffers():
        if buffer.numel() and (every or id(buffer) in state):
            yield buffer
