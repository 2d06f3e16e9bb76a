"""The interfaces between the loop and the rooms: what the loop asks of each part, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol, TypeVar

import torch
from torch import nn

from .progress import TrainerControl, TrainerState
from .types import Inputs, MicroBatch, Step

T = TypeVar("T")


class Processes(Protocol):
    """The processes of a run, and what they tell each other on the host. All of them call a method, in the same order.

    Each method raises `ProcessError` on the others where one process fails (`tell`).
    """

    count: int
    index: int
    local_index: int

    def table(self, numbers: Sequence[float]) -> list[list[float]]:
        """The numbers (at most 14) that each process gives, in the order of the processes."""
        ...

    def all_of(self, value: T) -> list[T]:
        """The value of each process, in their order."""
        ...

    def from_first(self, make: Callable[[], T]) -> T:
        """What `make` gives on process 0, where alone it is called."""
        ...

    def at(self, place: str, in_step: bool = False) -> None:
        """Says where this process is, for the message of a run that hangs; alone, without the others.

        Args:
            in_step: nothing takes long there, so that one who does not come on from it hangs.
        """
        ...

    def tell(self, error: BaseException) -> None:
        """Tells the others that this process fails, wherever they are."""
        ...


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

    def step_loss(self, model: nn.Module, batch: MicroBatch, num_targets: float) -> torch.Tensor:
        """What this micro-batch adds to the step's loss: its summed loss over the `num_targets` of the whole step.
        `batch` is on the device."""
        ...


class Engine(Protocol):
    """Where and how tensors are computed.

    One step: `begin_step`; for each micro-batch, within `micro_batch`, a loss (`compute`) and `backward`, or `idle`
    where this process has none; then the update once.
    """

    device: torch.device
    processes: Processes
    lockstep: bool
    """Whether a forward pass is a work of all processes (they hold parts of the weights): then all of them run the same
    number of micro-batches."""

    @property
    def num_processes(self) -> int: ...

    @property
    def process_index(self) -> int: ...

    @property
    def may_redo(self) -> bool:
        """Whether this process may begin its micro-batches again: no other one has its gradients yet."""
        ...

    def compute(self, model: nn.Module, function: Callable[[nn.Module], T]) -> T:
        """What `function` makes of a model, in a forward pass of the engine where it is the one in training."""
        ...

    def begin_step(self) -> None:
        """Before the first micro-batch of a step."""
        ...

    def micro_batch(self, last: bool) -> AbstractContextManager[Any]:
        """Around a micro-batch. After the last one of a step its gradients are the sum over all processes."""
        ...

    def idle(self) -> None:
        """Takes part in a step in which this process has no micro-batch."""
        ...

    def completed(self, loss: torch.Tensor) -> torch.Tensor:
        """After the last micro-batch of a step: its loss over all processes, of this one's part (0-dimensional)."""
        ...

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

    def try_saving(self) -> None:
        """Before the first step: raises what would keep a checkpoint from being written."""
        ...

    def save(self) -> None:
        """Begins to write a checkpoint. A failure is told, not raised."""
        ...

    def let_saves_end(self) -> None:
        """The run fails: waits for a checkpoint that this process is writing."""
        ...

    def look_at_saves(self) -> None:
        """Makes known what has become of a checkpoint that was being written, if it has come to its end."""
        ...

    def finish_saves(self) -> None:
        """At the end of a run: waits, and tries once more where the last checkpoint could not be written."""
        ...

    def refuse_unsaved(self) -> None:
        """Raises where that failed too."""
        ...

    def finish_uploads(self, stop: StopRequest) -> None:
        """Waits for what is being uploaded, and uploads the last state, where that is asked for."""
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

    def raise_for(self, number: int) -> NoReturn:
        """Ends the program in the way that the signal of this number asks for, whichever process it came to."""
        ...
