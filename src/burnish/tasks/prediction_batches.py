"""Batches for prediction: rows of like length together, under a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def batches_by_length(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Row numbers, longest rows first, so that memory that is too small shows at once.

    Args:
        lengths: tokens of each row.
        max_tokens: rows times longest row of a batch stay within it; a longer row makes a batch of its own.
    """
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > max_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def device_for_prediction() -> torch.device:
    """The first accelerator, or the processor."""
    import torch

    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
