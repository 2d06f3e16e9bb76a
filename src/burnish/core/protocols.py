"""The interfaces between the loop and the rooms: what the loop asks of each part, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import nn

from .progress import TrainerControl, TrainerState
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

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether an error says that memory ran out."""
        ...

    def free_memory(self) -> None:
        """Gives back what nothing holds any more."""
        ...

    def sum_over_processes(self, number: int) -> int:
        """The sum of one host number over all processes."""
        ...


class Events(Protocol):
    """The callbacks of a run, called by the name of the event."""

    def fire(self, event: str, **details: Any) -> None:
        """Calls `event` on every callback with (args, state, control, **details)."""
        ...


class Rhythm(Protocol):
    """When to log, evaluate, save and end."""

    def mark_step(self, control: TrainerControl, state: TrainerState) -> None:
        """Asks `control` for what is due after a step."""
        ...

    def mark_epoch(self, control: TrainerControl, state: TrainerState) -> None:
        """Asks `control` for what is due after a pass."""
        ...


class Actions(Protocol):
    """What the loop has done for it when it is due."""

    def log(self, logs: dict[str, float]) -> None:
        """Makes numbers known."""
        ...

    def evaluate(self) -> bool:
        """Evaluates; True if the result is the best so far and its weights are to be kept."""
        ...

    def save(self) -> None:
        """Begins to write a checkpoint. A failure is told, not raised."""
        ...

    def look_at_saves(self, wait: bool = False) -> None:
        """Makes known what has become of a checkpoint that was being written; with `wait`, once that is known."""
        ...

    def learning_rate(self) -> float:
        """The rate of the next update."""
        ...

    def advance_schedule(self) -> None:
        """Moves the learning rate on by one step."""
        ...


class StopRequest(Protocol):
    """A wish from outside (Ctrl-C, a scheduler) to end the run after the current step."""

    @property
    def requested(self) -> int | None:
        """The number of the signal, or None."""
        ...

    def raise_for_request(self) -> None:
        """Ends the program in the way that the signal asks for."""
        ...
