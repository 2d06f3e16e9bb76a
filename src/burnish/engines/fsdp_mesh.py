"""How the processes of a run stand to each other where they divide a model."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist
from torch import nn

from burnish.core.divided import is_divided
from burnish.core.errors import SettingError

from .fsdp_settings import Sharding

SHARD, REPLICATE = "shard", "replicate"
"""Names of the dimensions: processes that divide the weights among them, and those that hold the same part."""


def mesh_for(device_type: str, count: int, sharding: Sharding) -> Any:
    """All processes in a row; with `is_hybrid` rows of those that divide the weights among them.

    Raises:
        SettingError: the size of a row is not known, or does not divide their number.
    """
    from torch.distributed.device_mesh import init_device_mesh

    size = _row(sharding) if sharding.is_hybrid else count
    if count % size:
        raise SettingError(
            f"fsdp='hybrid_shard' with {count} processes in groups of {size}: these do not come out even. Start the "
            "same number on every machine, or set fsdp_config={'dp_shard_size': ...}."
        )
    if size == count:
        return init_device_mesh(device_type, (count,), mesh_dim_names=(SHARD,))
    return init_device_mesh(device_type, (count // size, size), mesh_dim_names=(REPLICATE, SHARD))


def sharded_over(model: nn.Module) -> dist.ProcessGroup:
    """The processes that hold all parts of the weights together, this one among them."""
    weight: Any = next(filter(is_divided, model.parameters()))
    group: dist.ProcessGroup = weight.device_mesh.get_group(weight.device_mesh.ndim - 1)
    return group


def _row(sharding: Sharding) -> int:
    if sharding.shard_size is not None:
        return sharding.shard_size
    given = os.environ.get("LOCAL_WORLD_SIZE", "")
    if not given.isdigit() or int(given) < 1:
        raise SettingError(
            "fsdp='hybrid_shard' divides a model among the processes of a machine, and the launcher does not say how "
            "many these are (LOCAL_WORLD_SIZE). Set fsdp_config={'dp_shard_size': ...}."
        )
    return int(given)
