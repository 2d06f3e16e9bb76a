"""Metrics as they are logged: names with a prefix, values that JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from burnish.core.errors import SettingError


def prefixed(metrics: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The metrics with ``prefix_`` before every name that lacks it, in their order."""
    start = f"{prefix}_"
    return {name if name.startswith(start) else start + name: value for name, value in metrics.items()}


def plain_numbers(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics with numbers of Python in place of scalars of numpy and torch, and lists in place of arrays.

    A tensor or array of one element is a scalar. Raises `SettingError` where a user's function returned no mapping.
    """
    if not isinstance(metrics, Mapping):
        raise SettingError(f"compute_metrics must return a dict of names and numbers, not {type(metrics).__name__}.")
    return {str(name): _plain(value) for name, value in metrics.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return value.item() if value.numel() == 1 else value.tolist()
    if isinstance(value, (np.generic, np.ndarray)):
        return value.item() if value.size == 1 else value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(inner) for inner in value]
    return value
