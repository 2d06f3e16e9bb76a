"""Which engine computes a run: what the launcher and the settings say, and no other."""

from __future__ import annotations

from typing import Any

import torch

from burnish.core.errors import SettingError
from burnish.core.protocols import Processes

from .ddp import DDPEngine, DDPSettings
from .fsdp import FSDPEngine
from .fsdp_settings import Sharding
from .in_backward import InBackwardEngine
from .precision import Precision
from .processes import processes_for, warn_of_runs_side_by_side
from .single import SingleEngine, device_for


def engine_for(args: Any) -> SingleEngine:
    """The engine of a trainer with these settings. Several processes are brought together here.

    Raises:
        SettingError: the processes, the devices and the settings do not go together.
    """
    device = device_for(args.use_cpu)
    processes = processes_for(args)
    warn_of_runs_side_by_side()
    if args.deepspeed:
        return _with_deepspeed(args, device, processes)
    precision = Precision(args.mixed_precision, device.type)
    if args.fsdp:
        return _with_fsdp(args, device, precision, processes)
    if args.optim_in_backward:
        if processes.count > 1:
            raise SettingError(
                f"optim_in_backward=True, and {processes.count} processes: a gradient is complete when those of all "
                "processes are added up, which is after the backward pass. Set it to False, or start one process."
            )
        return InBackwardEngine(device, precision, stops=str(args.nonfinite_policy.value) == "stop")
    if processes.count == 1:
        return SingleEngine(device, precision, args.max_grad_norm)
    return DDPEngine(device, precision, args.max_grad_norm, processes, DDPSettings.of(args))


def _with_fsdp(args: Any, device: torch.device, precision: Precision, processes: Processes) -> SingleEngine:
    """Raises `SettingError` for settings that FSDP cannot be combined with, and for one process."""
    sharding = Sharding.of(args)
    for name in ("optim_in_backward", "torch_compile"):
        if getattr(args, name):
            raise SettingError(f"`fsdp={args.fsdp!r}` and `{name}=True` do not go together in this release. Set one.")
    if processes.count == 1:
        raise SettingError(
            f"fsdp={args.fsdp!r} divides a model among processes, and this run has one. Start several, with "
            "burnish train --num_processes 2 or torchrun --nproc_per_node=2 train.py, or leave `fsdp` out: one process "
            "computes the same without it."
        )
    return FSDPEngine(device, precision, args.max_grad_norm, processes, sharding)


def _with_deepspeed(args: Any, device: torch.device, processes: Processes) -> SingleEngine:
    """Raises `SettingError` for settings that DeepSpeed cannot be combined with."""
    from .deepspeed import DeepSpeedEngine

    for name in ("optim_in_backward", "torch_compile", "fsdp"):
        if getattr(args, name):
            raise SettingError(
                f"`deepspeed` and `{name}={getattr(args, name)!r}`: both change how a step is computed. Set one."
            )
    return DeepSpeedEngine(device, processes, args)
