"""One device: where and how tensors are computed when there is one process, and on each one when there are several."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from burnish.core.errors import SettingError, UserError
from burnish.core.processes import Alone, gpu_index, launch
from burnish.core.protocols import Processes
from burnish.core.zero_parts import lies_in_parts

from . import memory
from .precision import Precision
from .rows import RowUpdates
from .tables import EmbeddingTables

logger = logging.getLogger(__name__)

T = TypeVar("T")


class SingleEngine:
    """Computes on one device. Engines of several processes change what is said of them here.

    Args:
        device: where to compute.
        precision: the type in which losses are computed, and the loss scale that goes with it.
        max_grad_norm: greatest 2-norm of the gradients of a step; 0 or less leaves them as they are.
    """

    processes: Processes = Alone()
    lockstep = False
    may_redo = True
    state_folder: str | None = None
    """Of an engine that divides the state of the optimizer among the processes, the folder of a checkpoint in which
    each writes its part; None where the first process has all of it."""
    divides = False
    """Whether a model lies in parts on the processes as soon as it is to be computed with, and stays so."""
    touches_few_rows = True
    """Whether large embedding tables may have gradients of the rows that were looked up alone; not where gradients are
    summed over the processes, which takes whole ones."""
    has_own_schedule = False
    """Whether the engine sets the learning rate."""

    def __init__(self, device: torch.device, precision: Precision, max_grad_norm: float = 0.0) -> None:
        self.device, self.precision, self.max_grad_norm = device, precision, max_grad_norm
        self.model: nn.Module | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self.tables: EmbeddingTables | None = None

    @property
    def num_processes(self) -> int:
        return self.processes.count

    @property
    def process_index(self) -> int:
        return self.processes.index

    def wrapped(self, model: nn.Module) -> nn.Module:
        """The model as it is called in training: the last thing that is done before the first step."""
        return model

    def unwrapped(self, model: nn.Module) -> nn.Module:
        """Of a model as it is called in training, the one that is called in evaluation."""
        return model

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """The model whose gradients, and the optimizer whose updates, the following steps are about."""
        self.model, self.optimizer = model, optimizer
        self._parameters = [p for p in model.parameters() if p.requires_grad]

    def meet(self, model: nn.Module) -> None:
        """The model that a trainer is about, before anything is done with it.

        Raises:
            SettingError: it was loaded in parts, which this engine cannot compute with.
        """
        if lies_in_parts(model):
            raise SettingError(
                f"{type(model).__name__} was loaded in parts by DeepSpeed (ZeRO-3), and this trainer's arguments do "
                "not ask for it. Give it the arguments with `deepspeed` that were there when the model was loaded, or "
                "load the model again without them."
            )

    def refuse_given(self, optimizer: Any, scheduler: Any) -> None:
        """Raises `SettingError` for an optimizer or a schedule of the user's own (or None) that would not be used."""

    def divide(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """With `divides`, before a model is computed with: takes it apart, unless it is already. All take part.

        Args:
            optimizer: one that was made of the whole model already.
        """

    def try_backward(self, loss: torch.Tensor) -> None:
        """The gradient of a loss that is tried out before the first step, without a loss scale."""
        loss.backward()  # type: ignore[no-untyped-call]

    def in_turns(self, model: nn.Module) -> contextlib.AbstractContextManager[None]:
        """Around forward passes of which processes have unequally many, such as those that write texts."""
        return contextlib.nullcontext()

    def taken(self, optimizer: torch.optim.Optimizer, num_steps: int) -> torch.optim.Optimizer:
        """The optimizer of a run of so many steps as the engine needs it, before a schedule is put on it."""
        return optimizer

    def whole_weights(self) -> dict[str, torch.Tensor] | None:
        """The model's state by name, on the CPU of the first process, where the processes hold parts of it or another
        one than the model computes with; None on the others, which take part, and where the model's own is whole."""
        return None

    def save_state(self, folder: Path) -> None:
        """With `state_folder`: writes the part of this process. All processes take part."""
        raise NotImplementedError

    def resume_from(self, folder: Path, scratch: Path, whole: Callable[[], dict[str, Any]]) -> None:
        """With `state_folder`, before `wrapped`: the run will go on from this state.

        Args:
            folder: where the processes have written their parts; there is none in a checkpoint of another engine.
            scratch: an empty folder that all processes see, until `restore_state` is over.
            whole: reads the state of an undivided optimizer from the checkpoint.
        """
        raise NotImplementedError

    def restore_state(self, num_steps: int) -> None:
        """With `state_folder`, after `wrapped`: reads back what was written in step `num_steps`. All take part."""
        raise NotImplementedError

    def finished(self) -> None:
        """After the last step of a run: the model is plain and whole again, where the engine had changed it."""

    @contextlib.contextmanager
    def touching_few_rows(self) -> Iterator[None]:
        """Large embedding tables with gradients of the rows that were looked up, inside the context. On the CPU, where
        memory traffic is what these tables cost, and without a loss scale, which torch takes out of whole tensors."""
        assert self.model is not None and self.optimizer is not None, "attach() comes first"
        if not self.touches_few_rows or self.device.type != "cpu" or self.precision.scaler is not None:
            yield
            return
        tables = EmbeddingTables(self.model)
        if not tables.weights:
            yield
            return
        self.tables = tables
        try:
            with self.tables.on(), RowUpdates(self.tables).on(self.optimizer):
                yield
        finally:
            self.tables = None

    def updating(self) -> contextlib.AbstractContextManager[Any]:
        """Around all steps of a run."""
        return contextlib.nullcontext()

    def to_device(self, inputs: Any) -> Any:
        if isinstance(inputs, torch.Tensor):
            return inputs.to(self.device, non_blocking=True)
        if isinstance(inputs, Mapping):
            return {name: self.to_device(value) for name, value in inputs.items()}
        if isinstance(inputs, (list, tuple)):
            values = [self.to_device(value) for value in inputs]
            return type(inputs)(*values) if hasattr(inputs, "_fields") else type(inputs)(values)
        return inputs

    def autocast(self, name: str | None = None) -> contextlib.AbstractContextManager[Any]:
        """The precision in which losses are computed: that of the run, or another by name."""
        return self.precision.autocast(self.device, name)

    def compute(self, model: nn.Module, function: Callable[[nn.Module], T]) -> T:
        """What `function` makes of the model."""
        return function(model)

    def begin_step(self) -> None:
        """Before the first micro-batch of a step."""

    def micro_batch(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Around a micro-batch."""
        return contextlib.nullcontext()

    def idle(self) -> None:
        """One process is never without a micro-batch."""

    def completed(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss of a step, of which every part is computed."""
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        """Adds the gradient of a loss. Raises `UserError` where the loss has none."""
        if not loss.requires_grad:
            raise UserError(
                "The loss has no gradient: it does not depend on a trainable parameter, or was cut off from them by "
                "detach(), item() or torch.no_grad() in the model or in the loss function."
            )
        self.precision.scaled(loss).backward()  # type: ignore[no-untyped-call]

    def gradient_norm(self) -> torch.Tensor:
        assert self.optimizer is not None, "attach() comes first"
        self.precision.unscale(self.optimizer)
        gradients = [grad for p in self._parameters if (grad := self._gradient(p)) is not None]
        if not gradients:
            return torch.zeros((), device=self.device)
        return self.precision.judged(torch.nn.utils.get_total_norm(gradients))

    def clip(self, grad_norm: torch.Tensor) -> None:
        if self.max_grad_norm <= 0 or self._is_within(grad_norm):
            return
        dense = self._parameters
        if self.tables is not None:
            share = (self.max_grad_norm / (grad_norm + 1e-6)).clamp(max=1.0)  # as torch's clip_grads_with_norm_
            self.tables.scale(share)
            dense = [p for p in self._parameters if self.tables.rows_of(p) is None]
        torch.nn.utils.clip_grads_with_norm_(dense, self.max_grad_norm, grad_norm)

    def _is_within(self, grad_norm: torch.Tensor) -> bool:
        """Whether there is nothing to clip, where the host may ask without waiting; elsewhere it is never known."""
        return self.device.type == "cpu" and float(grad_norm) + 1e-6 <= self.max_grad_norm

    def _gradient(self, parameter: nn.Parameter) -> torch.Tensor | None:
        """The gradient of a parameter; of an embedding table, the rows that are not zero."""
        gradient = parameter.grad
        if self.tables is None or gradient is None:
            return gradient
        rows = self.tables.rows_of(parameter)
        return gradient if rows is None else gradient.index_select(0, rows)

    def update(self, apply: torch.Tensor) -> None:
        """Applies the gradients where `apply` is True. The decision is taken on the device when the optimizer can
        (the fused ones of torch); otherwise the host reads it, as torch's own loss scaler does."""
        optimizer = self.optimizer
        assert optimizer is not None, "attach() comes first"
        if self.precision.scaler is not None:
            self.precision.step(optimizer, apply)
        elif self.device.type != "cpu" and getattr(optimizer, "_step_supports_amp_scaling", False):
            _step_where(optimizer, apply)
        elif bool(apply):
            optimizer.step()

    def clear_gradients(self) -> None:
        assert self.optimizer is not None, "attach() comes first"
        if self.tables is not None:
            self.tables.clear()
        self.optimizer.zero_grad(set_to_none=True)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return memory.is_out_of_memory(error)

    def free_memory(self) -> None:
        memory.free(self.device)

    def sum_over_processes(self, number: int) -> int:
        return int(sum(row[0] for row in self.processes.table([number])))

    @cached_property
    def accelerator(self) -> Any:
        """An `accelerate.Accelerator` on the same device, for code that asks the trainer for one."""
        from accelerate import Accelerator

        try:
            accelerator = Accelerator(cpu=self.device.type == "cpu", mixed_precision=self.precision.name)
        except ValueError:  # its state is one for the process, and another trainer has set it
            accelerator = Accelerator()
            logger.warning(
                "accelerate was set up in this process before, with mixed_precision=%r on %s, and stays so: of "
                "trainer.accelerator, `autocast` and `device` are those. The trainer itself computes in %r on %s.",
                *(accelerator.mixed_precision, accelerator.device, self.precision.name, self.device),
            )
        accelerator.scaler = self.precision.scaler
        return accelerator


def _step_where(optimizer: torch.optim.Optimizer, apply: torch.Tensor) -> None:
    """One step that the device leaves out where `apply` is False: the way torch's loss scaler tells its fused
    optimizers of an overflow."""
    optimizer.grad_scale, optimizer.found_inf = None, (~apply).float()  # type: ignore[attr-defined]
    try:
        optimizer.step()
    finally:
        del optimizer.grad_scale, optimizer.found_inf  # type: ignore[attr-defined]


def device_for(use_cpu: bool) -> torch.device:
    """The device of this process: CUDA, then Apple's MPS, then the CPU. Of several processes on a machine each has the
    GPU of its number, which becomes torch's current one.

    Raises:
        SettingError: there are more processes than GPUs, or several on MPS.
    """
    here = launch()
    if not use_cpu and torch.cuda.is_available():
        if here.count == 1:
            return torch.device("cuda", torch.cuda.current_device())
        index = gpu_index()
        if index >= torch.cuda.device_count():
            raise SettingError(
                f"This is process {here.local_index} of its machine (LOCAL_RANK, from 0), which shows "
                f"{torch.cuda.device_count()} GPUs. Start one process for each GPU, or set use_cpu=True."
            )
        torch.cuda.set_device(index)
        return torch.device("cuda", index)
    if not use_cpu and torch.backends.mps.is_available():
        if here.count > 1:
            raise SettingError("Several processes cannot share Apple's MPS: start one process, or set use_cpu=True.")
        return torch.device("mps")
    return torch.device("cpu")
