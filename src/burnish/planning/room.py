"""How much memory there is."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

CONTROL_GROUP = Path("/sys/fs/cgroup/memory.max")


def memory_of_device(device: str) -> int | None:
    """Bytes of the device: of the machine, or what its control group may have; of the first CUDA device. None where
    that cannot be found out."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else None
    found: list[int] = []
    with contextlib.suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with contextlib.suppress(OSError, ValueError):
        found.append(int(CONTROL_GROUP.read_text()))
    return min(found, default=None)
