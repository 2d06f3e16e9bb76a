"""Which engine computes a run: what the launcher and the settings say, and no other."""

from __future__ import annotations

from typing import Any

import torch

from burnish.core.errors import SettingError
from burnish.core.protocols import Processes

from .ddp import DDPEngine, DDPSettings
from .in_backward import InBackwardEngine
from .precision import Precision
from .processes import processes_for
from .single import SingleEngine, device_for


def engine_for(args: Any) -> SingleEngine:
    """The engine of a trainer with these settings. Several processes are brought together here.

    Raises:
        SettingError: the processes, the devices and the settings do not go together.
    """
    device = device_for(args.use_cpu)
    processes = processes_for(args)
    if args.deepspeed:
        return _with_deepspeed(args, device, processes)
    precision = Precision(args.mixed_precision, device.type)
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


def _with_deepspeed(args: Any, device: torch.device, processes: Processes) -> SingleEngine:
    """Raises `SettingError` for settings that DeepSpeed cannot be combined with."""
    from .deepspeed import DeepSpeedEngine

    for name in ("optim_in_backward", "torch_compile", "fsdp"):
        if getattr(args, name):
            raise SettingError(
                f"`deepspeed` and `{name}={getattr(args, name)!r}`: both change how a step is computed. Set one."
            )
    return DeepSpeedEngine(device, processes, args)
