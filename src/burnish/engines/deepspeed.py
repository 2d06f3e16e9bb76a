"""Several processes that divide optimizer states, gradients and weights among them: DeepSpeed's ZeRO."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from burnish.core.errors import CheckpointError, SettingError, UserError
from burnish.core.processes import default_backend, gpu_index
from burnish.core.protocols import Processes
from burnish.core.zero_parts import lies_in_parts, without_new_names
from burnish.core.zero_settings import stage_of

from . import deepspeed_config as configuration
from . import deepspeed_files
from . import deepspeed_swapped as swapped
from . import deepspeed_universal as universal
from .deepspeed_ops import check_builds, operators, require_package
from .deepspeed_universal import SCHEDULE, TAG
from .deepspeed_weights import Untouched, head_of, let_go, named_wholes, take_over
from .mapped import MappedTensors
from .precision import Precision
from .processes import one_group
from .shell import Computation, Shell, nothing
from .single import SingleEngine
from .turns import Turns

logger = logging.getLogger(__name__)

T = TypeVar("T")

WHOLE_LISTS = ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "ASGD", "Rprop")
"""Optimizers of torch that treat each number by itself. ZeRO gives them pieces of many weights in a row, for which any
other one would compute something else."""


class DeepSpeedEngine(SingleEngine):
    """Hands the losses of a step to DeepSpeed, micro-batch by micro-batch, and has it update once.

    DeepSpeed takes the mean of the gradients over the processes and the micro-batches that its configuration names.
    Here a loss is divided by the targets of the whole step already, and a step has as many micro-batches as it needs:
    so each loss goes in times the number of processes, and nothing is divided by micro-batches.

    Args:
        device: where to compute.
        processes: of the run.
        args: the settings of the run; `deepspeed` among them.

    Raises:
        SettingError: the package is missing, a build of its operators was broken off, or the configuration contradicts
            the settings.
    """

    state_folder = "deepspeed"
    touches_few_rows = False

    def __init__(self, device: torch.device, processes: Processes, args: Any) -> None:
        require_package()
        super().__init__(device, Precision("no", device.type), args.max_grad_norm)
        self.processes, self.args = processes, args
        self.config = configuration.filled(args.deepspeed, args, processes.count, device.type == "cpu")
        self.stage = stage_of(self.config)
        self.lockstep = self.stage >= 2
        self._num_steps = 0
        self._ds: Any = None
        self._met: nn.Module | None = None
        self._untouched: Untouched | None = None
        self.is_updating = self._in_micro_batch = self._is_quiet = False
        self._resumed: Path | None = None
        self._is_universal = self._has_place = False
        self._backwards, self._in_backward, self._holds_gradients = 0, False, False
        check_builds(operators(self.config, device.type == "cpu"))

    @property
    def has_own_schedule(self) -> bool:  # type: ignore[override]
        return "scheduler" in self.config

    def refuse_given(self, optimizer: Any, scheduler: Any) -> None:
        configuration.refuse_two(self.config, {"optimizer": optimizer, "scheduler": scheduler})

    def taken(self, optimizer: torch.optim.Optimizer, num_steps: int) -> torch.optim.Optimizer:
        """Without the groups that hold nothing, of which ZeRO can make no partition."""
        for remark in configuration.remarks(self.config, self.args):
            logger.log(logging.WARNING if self.process_index == 0 else logging.DEBUG, remark)
        self._num_steps = num_steps
        optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]
        return optimizer

    # ------------------------------------------------------------------ begin and end of a run

    def meet(self, model: nn.Module) -> None:
        if self.stage < 3:
            super().meet(model)
        self._met, self.divides = model, lies_in_parts(model)

    def divide(self, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Sets DeepSpeed up around a model that was loaded in parts, unless it is: nothing can be computed with it
        before. For a run where its optimizer is known, else for forward passes alone."""
        if self.divides and self._ds is None:
            with self._quietly():
                self._set_up(model)

    def wrapped(self, model: nn.Module) -> nn.Module:
        """The model in DeepSpeed's engine, divided as its stage says.

        Raises:
            SettingError: DeepSpeed cannot be set up in this way, or sets up something else than was asked for.
        """
        assert self.optimizer is not None, "attach() comes first"
        if self._ds is None:
            self._set_up(model)
        wrapper: nn.Module = self._ds
        return wrapper

    def _set_up(self, model: nn.Module) -> None:
        import deepspeed

        if self.divides:
            take_over(model, self)
        one_group(default_backend(self.args.use_cpu))
        with contextlib.redirect_stdout(io.StringIO()):  # each process would print that an operator was built
            deepspeed.init_distributed(dist.get_backend(), auto_mpi_discovery=False, dist_init_required=False)
        self._untouched = Untouched(model)
        if self.divides and self.optimizer is not None:
            self._untouched.compute_in(configuration.dtype_of(self.config))
        given: dict[str, Any] = {} if self.optimizer is None else {"optimizer": self.optimizer}
        if self.optimizer is not None and "optimizer" in self.config:
            given = {"model_parameters": [_group_of(group) for group in self.optimizer.param_groups]}
        try:
            self._ds, *_ = deepspeed.initialize(
                model=Shell(model), config=self._whole_config(model), dist_init_required=False, **given
            )
        except (AssertionError, ValueError, TypeError, RuntimeError, NotImplementedError) as error:
            raise SettingError(f"DeepSpeed cannot be set up with this configuration: {error}") from error
        self._refuse_another_engine()
        if self.optimizer is not None:
            self._follow_its_groups()
        if self.stage == 3:
            self._announce_output_layer(model)

    def _whole_config(self, model: nn.Module) -> dict[str, Any]:
        own = self.config
        if self.optimizer is None:
            own = configuration.of_forward_passes(own, next(model.parameters()).dtype)
        config = configuration.completed(own, self.args, self._num_steps, getattr(model, "config", None))
        kind = type(self.optimizer)
        if kind.__module__.startswith("torch.optim") and kind.__name__ in WHOLE_LISTS:
            config.setdefault("zero_allow_untested_optimizer", True)
        return config

    def _announce_output_layer(self, model: nn.Module) -> None:
        """Losses at targets only use the weights of the output layer, and of what is computed right before it, outside
        of these layers: ZeRO-3 is to have them there for the whole forward and backward pass."""
        import deepspeed

        for parameter in head_of(model).parameters():
            deepspeed.zero.register_external_parameter(self._ds.module, parameter)

    def _refuse_another_engine(self) -> None:
        """What DeepSpeed says of itself, against what was asked for."""
        place, stage = str(self._ds.device.type), int(self._ds.zero_optimization_stage())
        if place != self.device.type:
            raise SettingError(
                f"The run computes on {self.device.type}, and DeepSpeed has chosen {place}. Set the environment "
                f"variable DS_ACCELERATOR={self.device.type} for it, or use_cpu={place == 'cpu'}."
            )
        if stage != self.stage or self._ds.dp_world_size != self.processes.count:
            raise SettingError(
                f"Asked for were ZeRO {self.stage} and {self.processes.count} processes, and DeepSpeed has set up ZeRO "
                f"{stage} and {self._ds.dp_world_size}."
            )

    def _follow_its_groups(self) -> None:
        """Where the configuration names the optimizer, the one of the run stands for it: the same groups, the same
        rates, the same states."""
        assert self.optimizer is not None
        basic = self._ds.basic_optimizer
        if basic is self.optimizer:
            return
        for group, known in zip(basic.param_groups, self.optimizer.param_groups, strict=True):
            if not self.has_own_schedule:
                group["lr"] = known["lr"]
                group["initial_lr"] = known.get("initial_lr", known["lr"])
        self.optimizer.param_groups[:] = basic.param_groups
        self.optimizer.state = basic.state

    def unwrapped(self, model: nn.Module) -> nn.Module:
        inner: nn.Module = model.module.module if model is self._ds else model  # type: ignore[assignment, union-attr]
        return inner

    def finished(self) -> None:
        """Takes the model out of DeepSpeed: whole again on each process, or in parts where it was loaded so."""
        ds, untouched, self._ds = self._ds, self._untouched, None
        if ds is None or untouched is None:
            return
        let_go(untouched.model)
        keeps_16_bits = configuration.keeps_16_bits(self.config)
        if untouched.came_divided:
            with self._quietly():
                untouched.stay_divided(in_full=self.optimizer is not None and not keeps_16_bits)
                ds.destroy()
            untouched.without_traces()
            self.optimizer = None
            return
        values = untouched.put_back(keeps_16_bits)
        ds.destroy()
        untouched.plain(values)

    @contextlib.contextmanager
    def updating(self) -> Iterator[None]:
        self.is_updating = True
        try:
            with self._quietly():
                yield
        finally:
            self.is_updating = False

    @contextlib.contextmanager
    def _quietly(self) -> Iterator[None]:
        """DeepSpeed speaks of its set-up only where burnish speaks of details, and not of what torch has renamed."""
        if self._is_quiet:
            yield
            return
        from deepspeed.utils import logger as theirs

        self._is_quiet = True
        level, is_alone = theirs.level, "LOCAL_RANK" not in os.environ
        if is_alone:
            os.environ["LOCAL_RANK"] = str(gpu_index())  # DeepSpeed asks nowhere else
        if logging.getLogger("burnish").getEffectiveLevel() > logging.DEBUG:
            theirs.setLevel(max(level, logging.WARNING))
        try:
            with without_new_names():
                yield
        finally:
            self._is_quiet = False
            theirs.setLevel(level)
            if is_alone:
                os.environ.pop("LOCAL_RANK", None)

    @contextlib.contextmanager
    def in_turns(self, model: nn.Module) -> Iterator[None]:
        """With ZeRO-3 every forward pass gathers weights."""
        self.divide(model)
        if self._ds is None or self.stage < 3:
            yield
            return
        with self._quietly(), Turns(self.processes, model, self.device).taken():
            yield

    # ------------------------------------------------------------------ a step

    def compute(self, model: nn.Module, function: Callable[[nn.Module], T]) -> T:
        if self._ds is None:
            return function(model)
        # a loss goes through DeepSpeed's own forward pass; what is evaluated through the shell, where its weights are
        outer = self._ds if model is self._ds or self._in_micro_batch else self._ds.module
        with self._quietly():
            found: T = outer(Computation(function))
        return found

    def begin_step(self) -> None:
        self._backwards = 0

    @contextlib.contextmanager
    def micro_batch(self, last: bool) -> Iterator[None]:
        self._ds.set_gradient_accumulation_boundary(last)
        before, self._in_micro_batch = self._backwards, True
        try:
            yield
        finally:
            self._in_micro_batch = False
        if self._backwards == before:
            raise UserError(
                "A training_step took no gradient through the trainer. With DeepSpeed, call "
                "self.accelerator.backward(loss) in place of loss.backward(): what it adds up is divided otherwise."
            )

    @property
    def may_redo(self) -> bool:  # type: ignore[override]
        return not self._in_backward and (self.stage < 2 or self._backwards == 0)

    def backward(self, loss: torch.Tensor) -> None:
        if not loss.requires_grad:
            super().backward(loss)
        self._in_backward = self._holds_gradients = True
        self._backwards += 1
        self._ds.backward(loss * self.processes.count, scale_wrt_gas=False)
        self._in_backward = False

    def try_backward(self, loss: torch.Tensor) -> None:
        with self._quietly():
            self.backward(loss)  # DeepSpeed's loss scale is taken out of the norm

    def idle(self) -> None:
        with self.micro_batch(last=True):
            self.backward(self.compute(self._ds, nothing))

    def completed(self, loss: torch.Tensor) -> torch.Tensor:
        if self.processes.count > 1:
            dist.all_reduce(loss)
        return loss

    def gradient_norm(self) -> torch.Tensor:
        optimizer = self._ds.optimizer
        scale = float(getattr(optimizer, "loss_scale", getattr(optimizer, "cur_scale", 1.0)))
        norm = self._scaled_norm(optimizer) / scale
        norm = torch.where(norm < 0, math.inf, norm)  # as DeepSpeed writes one that is not finite
        if configuration.half_precision(self.config) == "fp16" and scale > 1 and not torch.isfinite(norm):
            return torch.full_like(norm, torch.finfo(norm.dtype).max)  # left out by DeepSpeed, which lowers its scale
        return norm

    norm_of_gradients = gradient_norm

    def _scaled_norm(self, optimizer: Any) -> torch.Tensor:
        """The norm with the loss scale in it, before clipping. Each kind of optimizer keeps its gradients elsewhere."""
        if self.stage == 3 and configuration.offloads(self.config, "optimizer"):  # gradients may lie on a disk
            of_group = optimizer.complete_grad_norm_calculation_for_cpu_offload
            norms = torch.stack([torch.as_tensor(of_group(group)) for group in optimizer.fp16_groups])
            return torch.where((norms < 0).any(), -1.0, norms.square().sum().sqrt()).to(self.device)
        if self.stage == 3:
            parts = [part for group in optimizer.get_fp32_grad_partitions().values() for part in group.values()]
            squares = torch.stack([part.float().square().sum() for part in parts]).sum().to(self.device)
            dist.all_reduce(squares)
            return squares.sqrt()
        if hasattr(optimizer, "scaled_global_norm"):  # ZeRO-1 and 2
            return torch.as_tensor(optimizer.scaled_global_norm(), device=self.device).float()
        if hasattr(optimizer, "get_grads_for_norm"):  # ZeRO-1 in bfloat16 that adds gradients up in float32
            return torch.nn.utils.get_total_norm(optimizer.get_grads_for_norm()[0])
        gradients = [weight.grad.float() for weight in self._parameters if weight.grad is not None]
        return torch.nn.utils.get_total_norm(gradients)

    def clip(self, grad_norm: torch.Tensor) -> None:
        """Done by DeepSpeed within its update, to the `gradient_clipping` that is `max_grad_norm`."""

    def update(self, apply: torch.Tensor) -> None:
        if bool(apply):
            self._ds.step()
            self._holds_gradients = False

    def clear_gradients(self) -> None:
        """After an update DeepSpeed has done it; what was left out, it is made to forget."""
        if not self._holds_gradients:
            return
        optimizer = self._ds.optimizer
        optimizer.zero_grad(set_to_none=True)
        if hasattr(optimizer, "reset_cpu_buffers"):
            optimizer.reset_cpu_buffers()
        for name in ("averaged_gradients", "all_grad_tensors"):
            held = getattr(optimizer, name, None)
            if isinstance(held, dict):
                held.update(dict.fromkeys(held)) if self.stage < 3 else held.clear()
        if hasattr(optimizer, "clear_hp_grads"):
            optimizer.clear_hp_grads()
        self._holds_gradients = self._in_backward = False

    # ------------------------------------------------------------------ what is saved

    def whole_weights(self) -> dict[str, torch.Tensor] | None:
        model = self._met if self._ds is None else self.model or self._met
        if model is None or (self._ds is None and not self.divides):
            return None
        with self._quietly():
            return self._gathered(model)

    def _gathered(self, model: nn.Module) -> dict[str, torch.Tensor] | None:
        state = model.state_dict(keep_vars=True)
        names = {id(value): name for name, value in model.named_parameters()}
        found: dict[str, torch.Tensor] = {}
        failure: OSError | None = None
        trains = self._ds is not None and self.optimizer is not None
        in_full = trains and not configuration.keeps_16_bits(self.config)
        is_first = self.process_index == 0
        kept: MappedTensors | None = None  # a model in parts may be too large for the memory of the first process
        for name, value in named_wholes(model, in_full):
            if not is_first or failure is not None:
                continue  # the others gather on
            try:
                kept = MappedTensors(Path(self.args.output_dir)) if self.divides and kept is None else kept
                found[name] = value.to("cpu", copy=True) if kept is None else kept.copy(value)
            except OSError as error:
                failure = error
        if failure is not None:
            raise CheckpointError(
                f"The weights could not be gathered on the disk of {self.args.output_dir}: {failure}"
            ) from failure
        for name, value in state.items():
            if is_first and name not in found:
                shared = names.get(id(value), name)
                found[name] = found[shared] if shared in found else value.detach().to("cpu", copy=True)
        return {name: found[name] for name in state} if is_first else None

    def save_state(self, folder: Path) -> None:
        deepspeed_files.write(self._ds, folder, TAG)
        if self.process_index > 0:
            return
        universal.write_topology(folder, {**self._topology, SCHEDULE: self._schedule})
        if self._is_on_disk:
            swapped.write_names(self._ds.optimizer, folder)

    @property
    def _topology(self) -> dict[str, Any]:
        return universal.topology(self.config, self.processes.count, self.optimizer)

    @property
    def _schedule(self) -> str | None:
        return self.config["scheduler"]["type"] if self.has_own_schedule else None

    @property
    def _is_on_disk(self) -> bool:
        return universal.is_on_disk(self.config)

    def resume_from(self, folder: Path, scratch: Path, whole: Callable[[], dict[str, Any]]) -> None:
        """Raises `CheckpointError` where the state cannot be divided among these processes."""
        written = self.processes.from_first(lambda: universal.read_topology(folder))
        schedule = written.pop(SCHEDULE, None) if written else None
        self._resumed, self._is_universal = folder, written != self._topology
        self._has_place = not self._is_universal and schedule == self._schedule
        if not self._is_universal:
            return
        universal.refuse_unlike(self._topology, written, folder)
        by, for_ = universal.words(written), universal.words(self._topology)
        logger.warning("The optimizer's state was written by %s, and is converted for %s.", by, for_)

        def convert() -> None:
            assert self.model is not None and self.optimizer is not None, "attach() comes first"
            parts = (self.model, self.optimizer)
            state = whole() if written is None else universal.whole_state(folder, scratch, *parts)
            universal.write_universal(scratch / "universal", state, *parts)

        self.processes.from_first(convert)
        self._resumed = scratch / "universal"
        if self.divides:
            assert self.model is not None
            for name, value in named_wholes(self.model, in_full=False):
                if self.process_index == 0:
                    universal.write_weight(self._resumed, name, value)

    def restore_state(self, num_steps: int) -> None:
        folder = self._resumed
        assert folder is not None, "resume_from() comes first"
        groups = [dict(group) for group in self._ds.basic_optimizer.param_groups]
        try:
            if self._is_universal:
                self._ds.optimizer.load_state_dict(state_dict_list=None, checkpoint_folder=str(folder))
            else:
                with_schedule = self.has_own_schedule and self._has_place
                path, _ = self._ds.load_checkpoint(str(folder), tag=TAG, load_lr_scheduler_states=with_schedule)
                assert path is not None, "there is none"
                if self._is_on_disk:
                    part = Path(self._ds._get_zero_ckpt_name(str(folder), TAG))
                    files = folder / TAG / "offloaded_tensors" / f"rank{self.process_index:02d}"
                    swapped.restore(self._ds.optimizer, folder, part, files)
        except (RuntimeError, ValueError, KeyError, AssertionError, OSError) as error:
            raise CheckpointError(f"The state of DeepSpeed in {folder} cannot be read: {error}") from error
        for entry in self._ds.basic_optimizer.state.values():
            if isinstance(entry.get("step"), torch.Tensor):
                entry["step"] = entry["step"].clone()  # ZeRO-3 gives all groups one counter, which each would move on
        kept = ("params", "lr") if self.has_own_schedule and self._has_place else ("params",)
        for group, before in zip(self._ds.basic_optimizer.param_groups, groups, strict=True):
            group.update({name: value for name, value in before.items() if name not in kept})
        if self.has_own_schedule and not self._has_place:
            for _ in range(num_steps):
                self._ds.lr_scheduler.step()
        self._follow_its_groups()

    @cached_property
    def accelerator(self) -> Any:
        accelerator = super().accelerator
        accelerator.backward = lambda loss, **more: self.backward(loss)
        accelerator.unwrap_model = lambda model, *more, **other: self.unwrapped(model)
        return accelerator


def _group_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """What DeepSpeed's own optimizer is to know of a group: its weights, and how they decay."""
    return {name: group[name] for name in ("params", "weight_decay", "lr") if name in group}
