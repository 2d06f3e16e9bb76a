"""The tensors of a model, as far as their size goes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

NF4_BYTES = 0.5 + 4 / 64
"""Bytes of a weight in 4 bits: half a byte, and a 4-byte scale for each block of 64 (Dettmers et al., 2023, §3)."""


@dataclass(frozen=True)
class Weight:
    """One parameter."""

    shape: tuple[int, ...]
    bytes_each: float
    """Bytes of an element."""
    trained: bool = True
    is_table: bool = False
    """Whether it is an embedding table."""
    has_buffer: bool = False
    """Whether its gradient is a buffer that stays for the whole run: a large table that only look-ups use, on the
    CPU."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> float:
        return self.elements * self.bytes_each


def bytes_of(weights: Iterable[Weight]) -> int:
    """Bytes of the weights themselves."""
    return round(sum(weight.bytes for weight in weights))


def gradient_bytes(weights: Iterable[Weight], buffers: bool = True) -> int:
    """Bytes of the gradients, each of the type of its weight; without the lasting buffers of tables if so asked."""
    return round(sum(w.bytes for w in weights if w.trained and (buffers or not w.has_buffer)))


def buffer_bytes(weights: Iterable[Weight]) -> int:
    """Bytes of the lasting gradient buffers of embedding tables."""
    return round(sum(weight.bytes for weight in weights if weight.trained and weight.has_buffer))
