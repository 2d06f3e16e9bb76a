"""How each device says that its memory ran out."""

from __future__ import annotations

import pytest
import torch

from burnish.engines.memory import free, is_out_of_memory

SAID = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    torch.cuda.OutOfMemoryError("HIP out of memory."),
    RuntimeError("MPS backend out of memory (MPS allocated: 9.0 GB, other allocations: 1 KB, max allowed: 9.07 GB)."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:83] data. DefaultCPUAllocator: not enough memory: you tried to"),
    RuntimeError("CUDA error: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    MemoryError("Unable to allocate 8.00 EiB for an array"),
]


@pytest.mark.parametrize("error", SAID, ids=str)
def test_what_each_device_says(error: BaseException) -> None:
    assert is_out_of_memory(error)


def test_the_cpu_itself() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 60)
    assert is_out_of_memory(raised.value)


@pytest.mark.parametrize("error", [RuntimeError("shape mismatch"), ValueError("out of memory"), KeyError("x")], ids=str)
def test_what_is_something_else(error: BaseException) -> None:
    assert not is_out_of_memory(error)


def test_nothing_to_give_back_on_the_cpu() -> None:
    free(torch.device("cpu"))
