"""How long an example really is, and how long the data brought it."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

import numpy as np
import torch


def real_length(example: Any, is_encoder_decoder: bool = False) -> int | None:
    """Tokens that are attended to; for several sequences in one example (multiple choice), their number times the
    longest. An encoder-decoder model reads its labels too. None where the example has no tokens."""
    ids = _value(example, "input_ids")
    if ids is None:
        return None
    mask = _value(example, "attention_mask")
    length = _attended(ids if mask is None else mask, count_all=mask is None)
    labels = _value(example, "labels") if is_encoder_decoder else None
    if isinstance(labels, Sized) and getattr(labels, "ndim", 1) > 0:  # a tensor may hold one class number
        length += len(labels)
    return length


def brought_length(example: Any) -> int:
    """Positions of the example as the data brought it, padding included; 1 where it has no tokens."""
    ids = _value(example, "input_ids")
    return 1 if ids is None else _attended(ids, count_all=True)


def _value(example: Any, name: str) -> Any:
    return example.get(name) if isinstance(example, Mapping) else getattr(example, name, None)


def _attended(sequence: Any, count_all: bool) -> int:
    if isinstance(sequence, (torch.Tensor, np.ndarray)):
        array = np.asarray(sequence)
        per_row = np.full(array.shape[:-1], array.shape[-1]) if count_all else (array != 0).sum(-1)
        return int(per_row.max() * per_row.size) if per_row.size else 0
    if len(sequence) > 0 and isinstance(sequence[0], (list, tuple, np.ndarray, torch.Tensor)):
        return len(sequence) * max(_attended(row, count_all) for row in sequence)
    return len(sequence) if count_all else len(sequence) - sequence.count(0)
