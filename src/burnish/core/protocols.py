"""The interfaces between the loop and the rooms: what the loop asks of each part, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import nn

from .types import Inputs, MicroBatch, Step


class StepSource(Protocol):
    """Where steps come from. The position is (epoch, step), never a state of the source."""

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps of one pass; None where the data have no length."""
        ...

    def steps(self, epoch: int, first: int) -> Iterator[Step]:
        """The steps of pass `epoch` from step `first` on. What comes before is not read where that is possible."""
        ...


class Objective(Protocol):
    """Examples in, loss out."""

    def weight(self, batch: MicroBatch) -> int:
        """Targets of this micro-batch: how many of the things that the loss is a mean over. 0 means no loss."""
        ...

    def step_loss(self, model: nn.Module, batch: MicroBatch, num_targets: int) -> torch.Tensor:
        """What this micro-batch adds to the step's loss: its summed loss over the `num_targets` of the whole step.
        `batch` is on the device."""
        ...


class Engine(Protocol):
    """Where and how tensors are computed. One step: `backward` for each micro-batch, then the update once."""

    device: torch.device
    num_processes: int
    process_index: int

    def to_device(self, inputs: Inputs) -> Inputs:
        """The same inputs on the device."""
        ...

    def backward(self, loss: torch.Tensor) -> None:
        """Adds the gradient of `loss` to the gradients of the step."""
        ...

    def gradient_norm(self) -> torch.Tensor:
        """The 2-norm of the step's gradients, over all processes, with any loss scale taken out."""
        ...

    def clip(self, grad_norm: torch.Tensor) -> None:
        """Scales the gradients down to the greatest norm allowed."""
        ...

    def update(self, apply: torch.Tensor) -> None:
        """Applies the gradients where `apply` (bool, on the device) is True."""
        ...

    def clear_gradients(self) -> None:
        """Forgets the gradients of the step."""
        ...

    def sum_over_processes(self, number: int) -> int:
        """The sum of one host number over all processes."""
        ...


class Events(Protocol):
    """The callbacks of a run, called by the name of the event."""

    def fire(self, event: str, **details: Any) -> None:
        """Calls `event` on every callback with (args, state, control, **details)."""
        ...
