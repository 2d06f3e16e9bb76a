"""The state of an optimizer that lies on a disk (ZeRO-Infinity), back out of a checkpoint.

DeepSpeed copies its swap files into a checkpoint and back again. That alone begins anew: a fresh optimizer has no
moments, so theirs are not looked for; steps and what is too small to be swapped are not read; and a file is found by
the numbers of weights, which count all that a process has ever divided. Here every group of weights gets what it had,
and is swapped out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from burnish.core.errors import CheckpointError

GROUPS = "swapped.json"
"""Beside DeepSpeed's own files: the names of the groups of weights that each process cuts its part into, in order."""
FILE = "{}.tensor.swp"
PIPELINED = "PipelinedOptimizerSwapper"


def write_names(optimizer: Any, folder: Path) -> None:
    names = [str(flat.ds_id) for flat in optimizer.fp32_partitioned_groups_flat]
    (folder / GROUPS).write_text(json.dumps(names), encoding="utf-8")


def restore(optimizer: Any, folder: Path, part: Path, files: Path) -> None:
    """Gives DeepSpeed's optimizer of stage 3, which has made no step yet, what it had.

    Args:
        folder: what `write_names` has written into.
        part: DeepSpeed's file of what this process did not have on the disk.
        files: the swap files of this process.

    Raises:
        CheckpointError: the weights are cut into other groups, or states are swapped in a pipeline.
        OSError, ValueError: a file is missing or damaged.
    """
    if type(optimizer.optimizer_swapper).__name__ == PIPELINED:
        raise CheckpointError(
            "With pipeline_read or pipeline_write, the optimizer's states on a disk are not read back from a "
            "checkpoint in this release. Leave both out of offload_optimizer to go on."
        )
    names = json.loads((folder / GROUPS).read_text(encoding="utf-8"))
    flats = optimizer.fp32_partitioned_groups_flat
    saved = torch.load(part, map_location="cpu", weights_only=False)["optimizer_state_dict"]  # as DeepSpeed reads it
    if len(names) != len(flats):
        raise CheckpointError(
            f"The checkpoint has {len(names)} groups of weights on a disk, and this run {len(flats)}. Set the "
            "sub_group_size of the run that wrote it."
        )
    optimizer.checkpoint_event_prologue()
    for number, entry in _numbered(optimizer, saved["optimizer_state_dict"]["state"]).items():
        of_group = _Group(files, names[number], int(optimizer.fp16_partitioned_groups_flat_numel[number]))
        weights = of_group.read("", saved["fp32_flat_groups"][number])
        state = {
            name: of_group.read(f"{name}-", value) if isinstance(value, torch.Tensor) and value.dim() else value
            for name, value in entry.items()
        }
        _put_into_place(optimizer, number, weights, state)
    for name in ("loss_scaler", "dynamic_loss_scale", "overflow"):
        setattr(optimizer, name, saved[name])
    optimizer.checkpoint_event_epilogue()


class _Group:
    """What was saved of one group."""

    def __init__(self, files: Path, name: str, num_elements: int) -> None:
        self._files, self._name, self._num_elements = files, name, num_elements

    def read(self, prefix: str, kept: torch.Tensor) -> torch.Tensor:
        """A tensor of it, out of its swap file where it was not kept."""
        if kept.numel() == self._num_elements:
            return kept.detach()
        path = self._files / FILE.format(f"{prefix}{self._name}")
        numbers = np.fromfile(path, dtype=np.float32, count=self._num_elements)
        if len(numbers) != self._num_elements:
            raise ValueError(f"{path} holds {len(numbers)} numbers, and {self._num_elements} were expected")
        return torch.from_numpy(numbers)


def _numbered(optimizer: Any, states: Mapping[int, Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The states by number of the group, where DeepSpeed orders them by groups of the optimizer."""
    numbers = {id(flat): number for number, flat in enumerate(optimizer.fp32_partitioned_groups_flat)}
    optimizer._set_fp32_optimizer_param_groups()
    order = [numbers[id(flat)] for group in optimizer.optimizer.param_groups for flat in group["params"]]
    optimizer._clear_fp32_optimizer_param_groups()
    return {number: states.get(place, {}) for place, number in enumerate(order)}


def _put_into_place(optimizer: Any, number: int, weights: torch.Tensor, state: dict[str, Any]) -> None:
    flat = optimizer.fp32_partitioned_groups_flat[number]
    is_swapped = optimizer._swappable_optimizer_subgroup(number)
    if is_swapped:
        optimizer._optimizer_states_and_gradient_swap_in(number)
    flat.data.copy_(weights)
    optimizer.optimizer.state[flat] = state
    optimizer._reassign_or_swap_out_partitioned_parameters(number)
    if is_swapped:
        optimizer._optimizer_states_and_gradient_swap_out(number)
