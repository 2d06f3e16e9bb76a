"""When memory runs out: how each device says so, and how what is left over is given back."""

from __future__ import annotations

import gc

import torch

_SAID_BY = (
    "out of memory",  # CUDA, XPU and MPS, whichever class they raise
    "DefaultCPUAllocator",  # the CPU, "can't allocate memory" on Linux, "not enough memory" elsewhere
    "can't allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device or the host has no memory left. Of torch's own errors only the CUDA one has
    a class; the others are told by their words."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _SAID_BY)


def free(device: torch.device) -> None:
    """Gives back what nothing holds any more. Tensors in cycles, such as a stack trace and its frames, go first."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()
