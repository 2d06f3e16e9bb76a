"""The update within the backward pass: each weight takes its step as soon as its gradient is complete, and the gradient
is freed. So a step of one micro-batch never holds more than a few gradients at once.

The gradient of a weight is complete in the last micro-batch of a step, when torch has added the last part of it; there
torch calls a hook (`register_post_accumulate_grad_hook`). The optimizer is the run's own and takes its own step, for
one weight at a time, so rates, states and checkpoints are those of ordinary steps, and so are the weights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from burnish.core.errors import SettingError

from .precision import Precision
from .single import SingleEngine


class InBackwardEngine(SingleEngine):
    """One device, with the update in the backward pass.

    What must be known of all gradients before the first weight moves cannot be done: clipping, a loss scale, leaving
    out a step whose gradient is not finite. A loss that is not finite is seen before.

    Args:
        stops: whether nothing is applied from the first loss or gradient on that is not finite.
    """

    touches_few_rows = False  # buffers for the gradients of tables would stay for the whole run

    def __init__(self, device: torch.device, precision: Precision, stops: bool) -> None:
        assert precision.scaler is None
        super().__init__(device, precision)
        self.stops = stops
        self._is_last = self._begun = False
        self._norms: dict[nn.Parameter, torch.Tensor] = {}

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """As on one device. Raises `SettingError` for an optimizer that may not treat weights one by one."""
        kind = type(optimizer)
        if kind.__module__.partition(".")[0] != "torch" and kind.__name__ != "Adafactor":
            raise SettingError(
                f"optim_in_backward=True, and the optimizer is {kind.__module__}.{kind.__name__}: only those of "
                "torch.optim and Adafactor are known to update each weight by itself. Set optim='adamw_torch_fused', "
                "'adafactor' or 'sgd', or optim_in_backward=False."
            )
        super().attach(model, optimizer)
        self._finite = torch.ones((), dtype=torch.bool, device=self.device)

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        handles = [weight.register_post_accumulate_grad_hook(self._complete) for weight in self._parameters]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @property
    def may_redo(self) -> bool:  # type: ignore[override]
        return not self._begun

    def begin_step(self) -> None:
        assert self.optimizer is not None, "attach() comes first"
        self._begun = False
        self._norms.clear()
        self._groups = {weight: group for group in self.optimizer.param_groups for weight in group["params"]}

    @contextlib.contextmanager
    def micro_batch(self, last: bool) -> Iterator[None]:
        self._is_last = last
        try:
            yield
        finally:
            self._is_last = False

    def backward(self, loss: torch.Tensor) -> None:
        self._finite &= torch.isfinite(loss.detach())
        super().backward(loss)

    def _complete(self, weight: nn.Parameter) -> None:
        """Called by torch: the gradient of a micro-batch has been added to that of a weight."""
        if not self._is_last:
            return
        assert weight.grad is not None and self.optimizer is not None
        self._begun = True
        self._norms[weight] = torch.linalg.vector_norm(weight.grad)
        self._finite &= torch.isfinite(self._norms[weight])
        with _of_one(self.optimizer, weight, self._groups[weight]):
            super().update(self._finite if self.stops else torch.ones_like(self._finite))
        weight.grad = None

    def gradient_norm(self) -> torch.Tensor:
        """The 2-norm over the gradients of the step, of which most are gone."""
        for weight in self._parameters:  # of earlier micro-batches alone
            if weight.grad is not None:
                self._norms[weight] = torch.linalg.vector_norm(weight.grad)
        norms = [self._norms[weight] for weight in self._parameters if weight in self._norms]
        return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros((), device=self.device)

    def update(self, apply: torch.Tensor) -> None:
        """Applies what is left: gradients to which the last micro-batch has added nothing."""
        if any(weight.grad is not None for weight in self._parameters):
            super().update(apply)


@contextlib.contextmanager
def _of_one(optimizer: torch.optim.Optimizer, weight: nn.Parameter, group: dict[str, Any]) -> Iterator[None]:
    """An optimizer that has one weight inside the context, with the settings of its group and the state that it has."""
    groups = optimizer.param_groups
    optimizer.param_groups = [{**group, "params": [weight]}]
    try:
        yield
    finally:
        optimizer.param_groups = groups
