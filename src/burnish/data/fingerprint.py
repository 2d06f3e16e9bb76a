"""Whether two datasets hold the same rows, told by a few of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from .reading import row_of

ROWS = 16
"""Rows that are read, spread over the dataset, the first and the last among them."""


def fingerprint(dataset: Any) -> str:
    """12 hex digits that follow from the number of rows and the content of `ROWS` of them.

    Equal for equal rows, whether their numbers come as lists, arrays or tensors. Of values that are no numbers, texts
    or containers of these (pictures, objects), only the class counts. For map-style datasets that give the same rows
    whenever they are read.

    Raises:
        DataError: a row cannot be read.
    """
    size = len(dataset)
    digest = hashlib.sha256(str(size).encode())
    for number in sorted({round(i * (size - 1) / (ROWS - 1)) for i in range(ROWS)} if size else ()):
        _add(digest, row_of(dataset, number))
    return digest.hexdigest()[:12]


def _add(digest: Any, value: Any) -> None:
    """Adds a value, each part of it with its kind and size, so that no two values look alike."""
    numbers = _numbers(value)
    if numbers is not None:
        digest.update(f"{numbers.dtype.kind}{numbers.shape}".encode())
        digest.update(numbers.tobytes())
    elif isinstance(value, Mapping):
        digest.update(f"dict {len(value)}".encode())
        for name in sorted(value, key=str):
            _add(digest, str(name))
            _add(digest, value[name])
    elif isinstance(value, (list, tuple)):
        digest.update(f"list {len(value)}".encode())
        for part in value:
            _add(digest, part)
    elif isinstance(value, (str, bytes)):
        content = value.encode(errors="surrogatepass") if isinstance(value, str) else value
        digest.update(f"text {len(content)}".encode() + content)
    else:
        digest.update(type(value).__name__.encode())


def _numbers(value: Any) -> np.ndarray[Any, Any] | None:
    """Numbers in one type of integers and one of floats (the one that tables give tensors); None for what is none."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = value.float().numpy() if value.is_floating_point() else value.numpy()
    if not isinstance(value, (int, float, list, tuple, np.ndarray, np.generic)):
        return None
    try:
        found = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        return None  # rows of unequal length, or no numbers
    if found.dtype.kind in "biu":
        return found.astype(np.int64)
    with np.errstate(over="ignore"):
        return found.astype(np.float32) if found.dtype.kind == "f" else None
