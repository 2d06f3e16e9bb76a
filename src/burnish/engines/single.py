"""One device: where and how tensors are computed when there is one process."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import nn

from burnish.core.errors import SettingError, UserError

from . import memory
from .precision import Precision
from .tables import EmbeddingTables

logger = logging.getLogger(__name__)


class SingleEngine:
    """Computes on one device.

    Args:
        device: where to compute.
        precision: the type in which losses are computed, and the loss scale that goes with it.
        max_grad_norm: greatest 2-norm of the gradients of a step; 0 or less leaves them as they are.
    """

    num_processes = 1
    process_index = 0

    def __init__(self, device: torch.device, precision: Precision, max_grad_norm: float = 0.0) -> None:
        self.device, self.precision, self.max_grad_norm = device, precision, max_grad_norm
        self.model: nn.Module | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self.tables: EmbeddingTables | None = None

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """The model whose gradients, and the optimizer whose updates, the following steps are about."""
        self.model, self.optimizer = model, optimizer
        self._parameters = [p for p in model.parameters() if p.requires_grad]

    @contextlib.contextmanager
    def touching_few_rows(self) -> Iterator[None]:
        """Large embedding tables with gradients of the rows that were looked up, inside the context. On the CPU, where
        memory traffic is what these tables cost, and without a loss scale, which torch takes out of whole tensors."""
        assert self.model is not None, "attach() comes first"
        if self.device.type != "cpu" or self.precision.scaler is not None:
            yield
            return
        self.tables = EmbeddingTables(self.model)
        try:
            with self.tables.on():
                yield
        finally:
            self.tables = None

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
        gradients = [self._gradient(p) for p in self._parameters if p.grad is not None]
        if not gradients:
            return torch.zeros((), device=self.device)
        return self.precision.judged(torch.nn.utils.get_total_norm(gradients))

    def clip(self, grad_norm: torch.Tensor) -> None:
        if self.max_grad_norm <= 0:
            return
        dense = self._parameters
        if self.tables is not None:
            share = (self.max_grad_norm / (grad_norm + 1e-6)).clamp(max=1.0)  # as torch's clip_grads_with_norm_
            self.tables.scale(share)
            dense = [p for p in self._parameters if self.tables.rows_of(p) is None]
        torch.nn.utils.clip_grads_with_norm_(dense, self.max_grad_norm, grad_norm)

    def _gradient(self, parameter: nn.Parameter) -> torch.Tensor:
        """The gradient of a parameter; of an embedding table, the rows that are not zero."""
        assert parameter.grad is not None
        rows = None if self.tables is None else self.tables.rows_of(parameter)
        return parameter.grad if rows is None else parameter.grad.index_select(0, rows)

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
        return number

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
    """The device of this process: CUDA, then Apple's MPS, then the CPU.

    Raises:
        SettingError: several processes were started; this release computes in one.
    """
    import os

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SettingError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}: the run was started with several processes, and this release "
            "trains in one. Start it without torchrun or accelerate launch, or with --num_processes 1."
        )
    if not use_cpu and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if not use_cpu and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")
