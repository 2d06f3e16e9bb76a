"""The interfaces between the loop and the rooms: what the loop asks of each part, and no more."""

from __future__ import annotations

import contextlib
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

    def count(self, inputs: Inputs) -> int:
        """Positions or rows of a collated batch that carry loss. Runs on the host, before anything is computed."""
        ...

    def step_loss(self, model: nn.Module, batch: MicroBatch, num_targets: int) -> torch.Tensor:
        """What this micro-batch adds to the step's loss: its summed loss over the `num_targets` of the whole step."""
        ...


class Engine(Protocol):
    """Where and how tensors are computed. One step: `backward` for each micro-batch, then `update` once."""

    device: torch.device
    num_processes: int
    process_index: int

    def prepare(self, model: nn.Module) -> nn.Module:
        """The model to call in training: on the device, wrapped or compiled as asked."""
        ...

    def to_device(self, inputs: Inputs) -> Inputs:
        """The same inputs on the device; floating point in the model's type where the engine demands it."""
        ...

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The precision in which losses are computed."""
        ...

    def backward(self, loss: torch.Tensor) -> None:
        """Adds the gradient of `loss` to the gradients of the step."""
        ...

    def gradient_norm(self) -> torch.Tensor:
        """The 2-norm of the step's gradients, over all processes, with any loss scale taken out."""
        ...

    def update(self, grad_norm: torch.Tensor, finite: torch.Tensor) -> None:
        """Clips and applies the gradients where `finite` is True on the device, and clears them."""
        ...

    def sum_over_processes(self, number: int) -> int:
        """The sum of one host number over all processes."""
        ...


class Events(Protocol):
    """The callbacks of a run, called by the name of the event."""

    def fire(self, event: str, **details: Any) -> None:
        """Calls `event` on every callback with (args, state, control, **details)."""
        ...
