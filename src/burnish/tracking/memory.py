"""How much memory this process holds."""

from __future__ import annotations

import sys
from pathlib import Path


def memory_in_use() -> int | None:
    """Bytes: the peak allocated on the current CUDA device where CUDA is in use, else the process's resident memory.

    None where the system does not say. The peak is what decides whether a larger batch fits; what is allocated when
    a log is due is little, as the activations are gone by then. Never loads torch, and does not wait for the device.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    return _resident()


def peak_memory() -> int | None:
    """Bytes: the most that was allocated on the current CUDA device where CUDA is in use, else the most that the
    process held so far. None where the system does not say."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration, ValueError, IndexError):
        return _peak_of_process()


def _peak_of_process() -> int | None:
    try:
        import resource
    except ImportError:
        return None  # Windows
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, others KiB


def _resident() -> int | None:
    try:
        import resource
    except ImportError:
        return None  # Windows
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return _peak_of_process()
