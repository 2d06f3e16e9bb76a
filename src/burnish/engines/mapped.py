"""Tensors on a disk that are read as if they were in memory, for what is gathered to be written, and too large."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

ALIGNED = 64
"""Bytes to whose multiples tensors begin."""


class MappedTensors:
    """Copies of tensors in a file without a name, which is gone with the last of them. They take memory only as far as
    some is free: the system writes them out otherwise.

    Args:
        folder: on the disk that is to hold them; made where it is missing.

    Raises:
        OSError: nothing can be written there; also from `copy`.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open as long as a tensor is)

    def copy(self, value: torch.Tensor) -> torch.Tensor:
        """A copy on the CPU."""
        content = value.detach().to("cpu").contiguous()
        if content.numel() == 0:
            return content.clone()
        begin = -(-self._file.seek(0, 2) // ALIGNED) * ALIGNED
        self._file.seek(begin)
        self._file.write(content.reshape(-1).view(torch.uint8).numpy().data)
        self._file.flush()
        size = content.numel() * content.element_size()
        mapped = np.memmap(self._file, dtype=np.uint8, mode="r+", offset=begin, shape=(size,))
        return torch.from_numpy(mapped).view(content.dtype).view(content.shape)
