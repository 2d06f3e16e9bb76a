"""A cache of keys and values in which each row of a batch has a length of its own.

slot 0  a b c d e .        The first slots are in use, from their left ends on. Each step writes one column of
slot 1  f g h . . .        each slot, at the slot's own length, and attends up to the longest; a mask leaves out
slot 2  . . . . . .        what lies behind a slot's end. So a text that has ended makes room for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer


class Slots(Cache):
    """The layers of one cache, and where its next keys and values go.

    Args:
        layers: of the model.
        slots: rows at the most.
        room: tokens of a row at the most.
    """

    def __init__(self, layers: int, slots: int, room: int) -> None:
        self.slots, self.room = slots, room
        self.first: int | None = None
        self.lengths = self.rows = torch.zeros(0, dtype=torch.int64)
        self.longest = 0
        super().__init__(layers=[SlotLayer(self) for _ in range(layers)])

    def fill_from(self, slot: int) -> None:
        """What comes next are whole prompts, for the slots from `slot` on, beginning at their left ends."""
        self.first = slot

    def go_on(self, lengths: Sequence[int], device: torch.device) -> None:
        """What comes next is one token for each of the first slots, which hold so many."""
        self.first, self.longest = None, max(lengths) + 1
        self.lengths = torch.tensor(lengths, device=device)
        self.rows = torch.arange(len(lengths), device=device)

    def mask(self) -> torch.Tensor:
        """What the new tokens may attend to: bool (rows, 1, 1, longest)."""
        places = torch.arange(self.longest, device=self.lengths.device)
        return (places <= self.lengths[:, None])[:, None, None]

    def move(self, source: int, target: int, length: int) -> None:
        """Puts what is in one slot into another."""
        for part in self._parts():
            part[target, :, :length] = part[source, :, :length]

    def resized(self, slots: int, room: int, used: int, longest: int) -> Slots:
        """A cache of another size that begins with the first `used` slots, of at most `longest` tokens."""
        other = Slots(len(self.layers), slots, room)
        for old, new in zip(self.layers, other.layers, strict=True):
            if old.is_initialized:
                new.keys, new.values = (
                    part.new_zeros(slots, part.shape[1], room, part.shape[3]) for part in (old.keys, old.values)
                )
                new.keys[:used, :, :longest] = old.keys[:used, :, :longest]
                new.values[:used, :, :longest] = old.values[:used, :, :longest]
                new.is_initialized = True
        return other

    @property
    def bytes_per_token(self) -> int:
        return sum(part.shape[1] * part.shape[3] * part.element_size() for part in self._parts())

    def _parts(self) -> list[torch.Tensor]:
        return [part for layer in self.layers if layer.is_initialized for part in (layer.keys, layer.values)]


class SlotLayer(DynamicLayer):
    """Keys and values of one layer, (slots, heads, room, head size) each."""

    def __init__(self, cache: Slots) -> None:
        super().__init__()
        self._cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.device, self.dtype = key_states.device, key_states.dtype
        self.keys, self.values = (
            part.new_zeros(self._cache.slots, part.shape[1], self._cache.room, part.shape[3])
            for part in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Takes in (rows, heads, tokens, head size), and returns what these tokens attend to."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        cache, rows, tokens = self._cache, len(key_states), key_states.shape[2]
        if cache.first is not None:
            self.keys[cache.first : cache.first + rows, :, :tokens] = key_states
            self.values[cache.first : cache.first + rows, :, :tokens] = value_states
            return key_states, value_states
        self.keys[cache.rows, :, cache.lengths] = key_states[:, :, 0]
        self.values[cache.rows, :, cache.lengths] = value_states[:, :, 0]
        return self.keys[:rows, :, : cache.longest], self.values[:rows, :, : cache.longest]

    def get_seq_length(self) -> int:
        """Nothing, as far as a model asks: it is told positions and mask."""
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0
