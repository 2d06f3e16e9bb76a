"""Devices and processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .declare import FLAG, about

BACKENDS = ("nccl", "gloo", "mpi", "xccl", "hccl", "cncl", "mccl")


@dataclass
class DistributedFields:
    use_cpu: bool = field(default=False, metadata=about("Compute on the CPU even where there is a GPU."))
    local_rank: int = field(
        default=-1,
        metadata=about(
            "Has no effect: the number of a process on its machine is read from the environment variable LOCAL_RANK."
        ),
    )
    ddp_find_unused_parameters: bool | None = field(
        default=None,
        metadata=about("Look for parameters without gradient in each step; otherwise one is an error. Default: no."),
    )
    ddp_bucket_cap_mb: int | None = field(
        default=None, metadata=about("Size of the buckets in which gradients are summed, in MiB.")
    )
    ddp_broadcast_buffers: bool | None = field(
        default=None,
        metadata=about(
            "Copy buffers from process 0 before each step: all of them or none. Default: those saved with the weights."
        ),
    )
    ddp_static_graph: bool | None = field(
        default=None, metadata=about("Promise that every step uses the same parameters.")
    )
    ddp_backend: str | None = field(
        default=None,
        metadata=about("Backend of torch.distributed. Default: nccl for GPUs, gloo for CPUs.", choices=BACKENDS),
    )
    ddp_timeout: int = field(default=1800, metadata=about("Longest wait for another process, in seconds."))
    hang_timeout: float = field(
        default=600.0,
        metadata=about(
            "Longest wait for another process within a step, in seconds; then the run ends and says where each of them "
            "is. 0: as long as ddp_timeout."
        ),
    )
    fsdp: list[str] | str | None = field(
        default=None,
        metadata=about(
            "Divide weights, gradients and optimizer states among the processes (FSDP2): full_shard, shard_grad_op, "
            "hybrid_shard or hybrid_shard_zero2, and offload for weights in the memory of the host.",
            **FLAG,
        ),
    )
    fsdp_config: dict[str, Any] | str | None = field(
        default=None, metadata=about("Settings of FSDP (docs/fsdp.md): a dict, JSON, or a JSON file.")
    )
    deepspeed: dict[str, Any] | str | None = field(
        default=None, metadata=about("Settings of DeepSpeed: a dict, JSON, or a JSON file.")
    )
    accelerator_config: dict[str, Any] | str | None = field(
        default=None, metadata=about("Settings of accelerate: a dict or a JSON file.")
    )
    parallelism_config: Any = field(
        default=None, metadata=about("Layout of processes, as accelerate's ParallelismConfig.")
    )
