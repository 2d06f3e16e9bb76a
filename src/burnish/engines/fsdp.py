"""Several processes that divide weights, gradients and optimizer states among them: torch's FSDP2."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from burnish.core.divided import Division, base_of, division_of, is_divided, mapped, put_away
from burnish.core.divided import divide as take_down
from burnish.core.errors import SettingError
from burnish.core.protocols import Processes

from . import fsdp_weights
from .buffers import SharedBuffers
from .fsdp_blocks import blocks_of
from .fsdp_mesh import mesh_for, sharded_over
from .fsdp_order import SameOrder
from .fsdp_settings import Sharding
from .precision import Precision
from .shell import Computation, Shell, seeing_through
from .single import SingleEngine
from .turns import Turns

logger = logging.getLogger(__name__)

T = TypeVar("T")


class FSDPEngine(SingleEngine):
    """Divides a model as soon as it is to be computed with, and leaves it so: it may be too large for one process.

    A block's weights are gathered for its forward pass and again for its backward pass, where its gradients are summed
    over the processes and divided. The gradient is a sum, since each loss is divided by the targets of all processes
    already. Whatever is computed goes through a shell around the model, so that a loss may use embeddings and output
    layer by themselves.

    Args:
        device, precision, max_grad_norm: as for one process.
        processes: of the run; several.
        sharding: what is divided, and how.
    """

    lockstep = True
    divides = True
    may_redo = False
    touches_few_rows = False

    def __init__(
        self,
        device: torch.device,
        precision: Precision,
        max_grad_norm: float,
        processes: Processes,
        sharding: Sharding,
    ) -> None:
        super().__init__(device, precision, max_grad_norm)
        self.processes, self.sharding = processes, sharding
        self._shell: nn.Module | None = None
        self._divided: nn.Module | None = None
        self._group: dist.ProcessGroup | None = None
        self._buffers: SharedBuffers | None = None
        self._order: SameOrder | None = None

    # ------------------------------------------------------------------ the model in parts

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Divides the model, if it is whole, and lets the optimizer follow.

        Raises:
            SettingError: the optimizer cannot be divided.
        """
        self.divide(model, optimizer)
        _refuse_optimizer(optimizer, model)
        super().attach(model, optimizer)

    def divide(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Divides a model that is whole. All processes get the weights of the first one.

        Args:
            optimizer: of the model's weights, which are other objects afterwards.

        Raises:
            SettingError: the model cannot be divided, or is another one on another process.
        """
        if division_of(model) is None:
            if optimizer is not None:
                _refuse_optimizer(optimizer, model)
            self._divide(model, optimizer)
        division = division_of(model)
        assert division is not None
        put_away(model)
        if self._divided is not model:
            self._divided, self._shell = model, division.outer
            self._group = sharded_over(model)
            self._buffers = SharedBuffers(model)
            self._settle_reduction(division.outer)

    def _divide(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        from torch.distributed.fsdp import fully_shard

        _refuse_model(model)
        for remark in self.sharding.remarks:
            logger.log(logging.WARNING if self.process_index == 0 else logging.DEBUG, remark)
        fsdp_weights.refuse_unlike(model, self.processes)
        shell, follow = Shell(model), fsdp_weights.Following(model, optimizer)
        mesh = mesh_for(self.device.type, self.processes.count, self.sharding)
        reshard = self.sharding.reshard_after_forward
        options = {"mesh": mesh, **self._policies()}
        try:
            for block in blocks_of(model, self.sharding):
                fsdp_weights.from_first(block, self.device)
                fully_shard(block, reshard_after_forward=reshard, **options)  # type: ignore[call-overload]
                follow.on()
            # outside of blocks a weight stays from its first use in a step to its gradient
            for outer in _outer(model):
                fsdp_weights.from_first(outer, self.device)
                done = set(filter(is_divided, outer.parameters()))  # adapters that learn a prompt hold embeddings, too
                fully_shard(outer, reshard_after_forward=False, ignored_params=done, **options)  # type: ignore[call-overload]
                follow.on()
            fully_shard(shell, reshard_after_forward=False, **options)  # type: ignore[call-overload]
            shell(Computation(lambda inner: None))  # the outermost part is the one that is called first
        except SettingError:
            raise
        except (ValueError, AssertionError, NotImplementedError) as error:
            raise SettingError(f"fsdp: {type(model).__name__} cannot be divided: {error}") from error
        take_down(model, Division(shell, self.sharding.param_dtype))
        self._refuse_another_engine(model)

    def _policies(self) -> dict[str, Any]:
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

        wanted = self.sharding
        policies: dict[str, Any] = {
            "mp_policy": MixedPrecisionPolicy(
                param_dtype=wanted.param_dtype,
                reduce_dtype=wanted.reduce_dtype,
                output_dtype=wanted.output_dtype,
                cast_forward_inputs=wanted.cast_forward_inputs,
            )
        }
        if wanted.offload:
            policies["offload_policy"] = CPUOffloadPolicy(pin_memory=self.device.type == "cuda")
        return policies

    def _refuse_another_engine(self, model: nn.Module) -> None:
        """What has become of the weights, against what was asked for."""
        left = [name for name, weight in model.named_parameters() if not is_divided(weight)]
        if left:
            raise SettingError(f"fsdp={self.sharding}: torch has left {len(left)} weights undivided: {left[0]}.")

    def _settle_reduction(self, shell: nn.Module) -> None:
        """Gradients are summed over the processes, and those that a process lacks are zeros in it."""
        from torch.distributed.fsdp import FSDPModule

        parts: list[Any] = [part for part in shell.modules() if isinstance(part, FSDPModule)]
        for part in parts:
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
            if hasattr(part, "set_reduce_scatter_unused_params"):  # from torch 2.13 on; before, SameOrder refuses them
                part.set_reduce_scatter_unused_params(True, recurse=False)
        assert self._divided is not None
        outer = [shell, *_outer(self._divided)]
        self._order = SameOrder(self.processes, self._divided, [part for part in parts if part not in outer])

    def wrapped(self, model: nn.Module) -> nn.Module:
        self.divide(model)
        assert self._shell is not None
        return self._shell

    def unwrapped(self, model: nn.Module) -> nn.Module:
        """The shell, in evaluation too: weights are gathered in its forward pass."""
        return self._shell if self._shell is not None and model in (self._shell, self._divided) else model

    def finished(self) -> None:
        """The model stays divided."""
        if self._order is not None:
            self._order.end()
        if self._divided is not None:
            put_away(self._divided)

    def in_turns(self, model: nn.Module) -> contextlib.AbstractContextManager[None]:
        if self._divided is model:
            _gather_outer(model)  # what writes texts calls parts of the model, and they gather their blocks alone
        return Turns(self.processes, model, self.device).taken()

    # ------------------------------------------------------------------ a step

    def compute(self, model: nn.Module, function: Callable[[nn.Module], T]) -> T:
        if self._shell is None or model not in (self._shell, self._divided):
            return function(model)

        def with_outer_weights(inner: nn.Module) -> T:
            _gather_outer(inner)  # by the model's forward pass otherwise, which the function may do without
            return function(inner)

        with _told_of_parts(LOSS_OF_PARTS):
            found: T = self._shell(Computation(with_outer_weights))
        mapped(found, _refuse_parts)
        return found

    def begin_step(self) -> None:
        assert self._buffers is not None, "divide() comes first"
        self._buffers.from_first()
        assert self._order is not None
        self._order.begin()

    @contextlib.contextmanager
    def micro_batch(self, last: bool) -> Iterator[None]:
        assert self._shell is not None, "divide() comes first"
        syncs: Any = self._shell
        syncs.set_requires_gradient_sync(last or self.sharding.syncs_each_batch)
        yield

    def idle(self) -> None:
        raise AssertionError("processes that hold parts of the weights compute equally many micro-batches")

    def completed(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss summed over the processes.

        Raises:
            SettingError: they did not compute with the same weights.
        """
        assert self._order is not None, "divide() comes first"
        self._order.check()
        dist.all_reduce(loss)
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        with _told_of_parts(LOSS_OF_PARTS):
            super().backward(loss)

    def try_backward(self, loss: torch.Tensor) -> None:
        with _told_of_parts(LOSS_OF_PARTS):
            super().try_backward(loss)

    def gradient_norm(self) -> torch.Tensor:
        assert self.optimizer is not None, "attach() comes first"
        self.precision.unscale(self.optimizer)
        return self.precision.judged(self.norm_of_gradients())

    def norm_of_gradients(self) -> torch.Tensor:
        """The 2-norm of the gradients as they are, over all processes."""
        parts = self._parts_of_gradients()
        norm = torch.nn.utils.get_total_norm(parts) if parts else torch.zeros(())
        squares = norm.float().to(self.device).square()
        dist.all_reduce(squares, group=self._group)
        return squares.sqrt()

    def clip(self, grad_norm: torch.Tensor) -> None:
        if self.max_grad_norm <= 0 or self._is_within(grad_norm):
            return
        share = (self.max_grad_norm / (grad_norm + 1e-6)).clamp(max=1.0)  # as torch's clip_grads_with_norm_
        for part in self._parts_of_gradients():
            part.mul_(share.to(part.device))

    def _parts_of_gradients(self) -> list[torch.Tensor]:
        gradients: list[Any] = [weight.grad for weight in self._parameters if weight.grad is not None]
        return [gradient.to_local() if is_divided(gradient) else gradient for gradient in gradients]

    def update(self, apply: torch.Tensor) -> None:
        assert self.optimizer is not None, "attach() comes first"
        name = type(self.optimizer).__name__
        with _told_of_parts(f"the optimizer {name} does not take divided weights. Set optim='adamw_torch_fused'"):
            if self.precision.scaler is not None:
                self.precision.step(self.optimizer, apply)
            elif bool(apply):
                self.optimizer.step()

    # ------------------------------------------------------------------ what is saved

    def whole_weights(self) -> dict[str, torch.Tensor] | None:
        if self._divided is None:
            return None
        self.processes.table([])  # where one is alone with it, torch would say so in words of its transport, or never
        return fsdp_weights.gathered(self._divided, self.device, self.process_index == 0)

    def whole_optimizer_state(self) -> dict[str, Any] | None:
        """The optimizer's state as that of an undivided one, on the CPU of the first process; None on the others, which
        take part."""
        assert self.optimizer is not None, "attach() comes first"
        return fsdp_weights.gathered_state(self.optimizer, self.device, self.process_index == 0)

    @cached_property
    def accelerator(self) -> Any:
        return seeing_through(super().accelerator)


LOSS_OF_PARTS = (
    "the loss uses weights of a block that is not being computed, of which each process holds a part. Use outputs of "
    "the model and the weights outside of its blocks, or set fsdp_config={'auto_wrap_policy': 'NO_WRAP'}"
)


@contextlib.contextmanager
def _told_of_parts(why: str) -> Iterator[None]:
    """Raises `SettingError` where code met parts of weights that it does not know what to do with."""
    try:
        yield
    except RuntimeError as error:
        if "mixed torch.Tensor and DTensor" not in str(error):
            raise
        raise SettingError(f"fsdp: {why}. ({error})") from error


def _refuse_parts(computed: torch.Tensor) -> None:
    """A sum of what processes have computed of different rows, and of parts of weights, is neither."""
    if is_divided(computed):
        raise SettingError(f"fsdp: {LOSS_OF_PARTS}.")


def _outer(model: nn.Module) -> list[nn.Module]:
    """The model, and before it the one that its adapters' wrapper calls by itself when it generates."""
    base = base_of(model)
    return [model] if base is model else [base, model]


def _gather_outer(model: nn.Module) -> None:
    """The weights outside of blocks. All processes take part."""
    for outer in _outer(model):
        unshard: Any = outer
        unshard.unshard()


def _refuse_model(model: nn.Module) -> None:
    if getattr(model, "is_quantized", False) or getattr(model, "hf_quantizer", None) is not None:
        raise SettingError(
            "fsdp and a quantised model: its weights cannot be divided in this release. Load it without quantisation, "
            "or leave `fsdp` out."
        )
    if getattr(model, "hf_device_map", None):
        raise SettingError(
            "fsdp and a model that was loaded with device_map: it lies on several devices already. Load it without, "
            "and each process takes its part."
        )


def _refuse_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    if type(optimizer).__module__.partition(".")[0] == "bitsandbytes":
        raise SettingError(
            f"fsdp and {type(optimizer).__name__}: the kernels of bitsandbytes do not take divided weights. Set "
            "optim='adamw_torch_fused'; its states are divided among the processes, too."
        )
    known = {id(weight) for weight in model.parameters()}
    if any(id(weight) not in known for group in optimizer.param_groups for weight in group["params"]):
        raise SettingError(
            "fsdp: the optimizer holds weights that are not the model's. Those would not be divided, and not be the "
            "same on all processes. Make them part of the model."
        )
