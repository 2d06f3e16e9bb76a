"""Several processes, each with a whole model: torch's DistributedDataParallel."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from burnish.core.errors import SettingError
from burnish.core.protocols import Processes

from .buffers import SharedBuffers
from .precision import Precision
from .shell import Computation, Shell, nothing, seeing_through
from .single import SingleEngine

T = TypeVar("T")

_SYNC_BUFFERS = "forward_sync_buffers"
if _SYNC_BUFFERS not in inspect.signature(DistributedDataParallel).parameters:
    _SYNC_BUFFERS = "broadcast_buffers"  # before torch 2.13

MOST_NAMES = 8
"""Parameters that a message names."""


@dataclass(frozen=True)
class DDPSettings:
    """The settings `ddp_*`; None is torch's default."""

    find_unused_parameters: bool = False
    """Look for parameters without gradient in each step, at the price of a walk through its graph."""
    bucket_cap_mb: int | None = None
    """Size of the buckets in which gradients are summed, in MiB."""
    broadcast_buffers: bool | None = None
    """Give buffers the values of process 0 before each step: all of them, none, or (None) those that are saved with the
    weights, such as running statistics."""
    static_graph: bool = False
    """Promise that every step uses the same parameters."""

    @classmethod
    def of(cls, args: Any) -> DDPSettings:
        return cls(
            find_unused_parameters=bool(args.ddp_find_unused_parameters),
            bucket_cap_mb=args.ddp_bucket_cap_mb,
            broadcast_buffers=args.ddp_broadcast_buffers,
            static_graph=bool(args.ddp_static_graph),
        )


class DDPEngine(SingleEngine):
    """Sums the gradients of a step over the processes, once, while its last micro-batch is computed backward.

    torch takes the mean over processes; here it is the sum, since each loss is divided by the targets of all processes
    already. So any backward pass is right: that of the engine, of a user's own step, of `accelerator.backward`.

    Args:
        device, precision, max_grad_norm: as for one process.
        processes: of the run.
        settings: of torch's wrapper.
    """

    touches_few_rows = False

    def __init__(
        self,
        device: torch.device,
        precision: Precision,
        max_grad_norm: float,
        processes: Processes,
        settings: DDPSettings,
    ) -> None:
        super().__init__(device, precision, max_grad_norm)
        self.processes, self.settings = processes, settings
        self._ddp: DistributedDataParallel | None = None
        self._in_last = False
        self._summed: list[torch.Tensor] = []
        """Parameters whose gradients were summed in this step."""
        self._buffers: SharedBuffers | None = None

    def wrapped(self, model: nn.Module) -> nn.Module:
        """The model in torch's wrapper. All processes get the weights of process 0."""
        settings = self.settings
        options: dict[str, Any] = {_SYNC_BUFFERS: False}  # in `begin_step`, where no process can be alone with it
        self._ddp = DistributedDataParallel(
            Shell(model),
            bucket_cap_mb=settings.bucket_cap_mb,
            find_unused_parameters=settings.find_unused_parameters,
            static_graph=settings.static_graph,
            gradient_as_bucket_view=True,
            **options,
        )
        self._ddp.register_comm_hook(self._summed, _sum)
        self._names = {id(weight): name for name, weight in model.named_parameters() if weight.requires_grad}
        self._buffers = SharedBuffers(model, settings.broadcast_buffers)
        return self._ddp

    def unwrapped(self, model: nn.Module) -> nn.Module:
        inner: nn.Module = model.module.module if model is self._ddp else model  # type: ignore[assignment, union-attr]
        return inner

    def compute(self, model: nn.Module, function: Callable[[nn.Module], T]) -> T:
        if model is not self._ddp:
            return function(model)
        found: T = model(Computation(function))
        return found

    def begin_step(self) -> None:
        assert self._buffers is not None, "wrapped() comes first"
        self._summed.clear()
        self._buffers.from_first()

    def micro_batch(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        assert self._ddp is not None, "wrapped() comes first"
        return contextlib.nullcontext() if last else self._ddp.no_sync()

    @property
    def may_redo(self) -> bool:  # type: ignore[override]
        return not self._in_last

    def backward(self, loss: torch.Tensor) -> None:
        self._in_last = self._ddp is not None and self._ddp.require_backward_grad_sync
        super().backward(loss)
        self._in_last = False

    def idle(self) -> None:
        assert self._ddp is not None, "wrapped() comes first"
        with self.micro_batch(last=True):
            self.backward(self.compute(self._ddp, nothing))

    def completed(self, loss: torch.Tensor) -> torch.Tensor:
        """The sum of the losses of all processes.

        Raises:
            SettingError: a parameter had no gradient in the last micro-batch, so that its bucket was not summed.
        """
        self._refuse_unused()
        dist.all_reduce(loss)
        return loss

    def _refuse_unused(self) -> None:
        summed = {id(weight) for weight in self._summed}
        left = [name for identity, name in self._names.items() if identity not in summed]
        if not left or self.settings.find_unused_parameters:
            return
        assert self.model is not None, "attach() comes first"
        trained = ((name, weight) for name, weight in self.model.named_parameters() if weight.requires_grad)
        without = [name for name, weight in trained if weight.grad is None]
        which, names = ("these", without) if without else ("some of these", left)
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        raise SettingError(
            f"Parameters got no gradient in a step, on process {self.process_index} {which}: "
            f"{', '.join(names[:MOST_NAMES])}{more}. With several processes torch waits for the gradient of each. Set "
            "ddp_find_unused_parameters=True where a loss does not use all of them, or freeze those that it never uses "
            "(requires_grad_(False))."
        )

    @cached_property
    def accelerator(self) -> Any:
        return seeing_through(super().accelerator)


def _sum(summed, bucket):  # type: ignore[no-untyped-def]  # torch looks at annotations, and knows no deferred ones
    """What torch does with a bucket of gradients that is complete: their sum over the processes, as a future."""
    summed.extend(bucket.parameters())
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])
