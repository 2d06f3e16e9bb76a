"""Decoder-only models: as many texts at once as pay, and a prompt that waits in the place of each text that ends.

A token of one text costs a pass over all weights; tokens of many texts share it. So prompts go into a cache of slots
(`slots.py`), every step writes one token of every text, and a text that has ended gives its slot to the next prompt.
Prompts of like length go in together, padded on the right, where padding changes nothing. They go in without their
last token: that is what the first step begins with, so no logits of prompts are computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .choosing import Choice
from .unfinished import Stops, Text

if TYPE_CHECKING:
    from .slots import Slots

PROMPT_TOKENS = 1024
"""Positions of prompts that go through the model at once: above these a matrix product gains nothing."""

ROOM_AGAIN = 0.25
"""Share of slots that are free before prompts are taken in: each time costs a pass over the weights."""

WORTH_COPYING = 1.25
"""How many times more texts a larger cache must hold."""


class Continuous:
    """Writes texts.

    Args:
        model: as it is called; in evaluation mode.
        forward: names of arguments of its `forward` that are made use of: "cache" or "past_key_values", and
            "logits_to_keep" if there is one.
        layers: of the cache.
        at_once: texts at once at the most.
        cache_tokens: tokens that the cache holds at the most; None for no limit. One text always has room.
    """

    def __init__(
        self,
        model: Any,
        forward: Collection[str],
        layers: int,
        choice: Choice,
        stops: Stops,
        at_once: int,
        cache_tokens: int | None = None,
    ) -> None:
        self._model, self._layers, self._choice, self._stops = model, layers, choice, stops
        self._at_once, self._cache_tokens = at_once, cache_tokens
        self._cache_name = "cache" if "cache" in forward else "past_key_values"
        self._for_prompts = {"logits_to_keep": 1} if "logits_to_keep" in forward else {}
        self._device = model.device
        self._eager = getattr(model.config, "_attn_implementation", None) == "eager"
        self._active: list[Text] = []
        self._cache: Slots | None = None

    def write(self, texts: Sequence[Text]) -> None:
        """Writes every text to its end."""
        waiting = deque(sorted(texts, key=lambda text: (-text.begun, text.row)))  # too little memory shows at once
        while waiting or self._active:
            self._take_in(waiting)
            tokens = self._choice.next_tokens(self.step(self._active), self._active)
            for text, token in zip(self._active, tokens, strict=True):
                text.tokens.append(token)
            self._let_go()

    def prefill(self, texts: Sequence[Text], first: int) -> None:
        """Puts all tokens but the last of these texts into the slots from `first` on."""
        longest = max(len(text.tokens) for text in texts) - 1
        if longest == 0:
            return
        assert self._cache is not None
        self._cache.fill_from(first)
        rows = [text.tokens[:-1] + text.tokens[:1] * (longest - len(text.tokens) + 1) for text in texts]
        positions = torch.arange(longest, device=self._device).expand(len(rows), longest)
        self._call(torch.tensor(rows, device=self._device), positions, **self._for_prompts)

    def step(self, texts: Sequence[Text]) -> torch.Tensor:
        """Logits of the next token of each text, (texts, vocabulary)."""
        assert self._cache is not None
        self._cache.go_on([len(text.tokens) - 1 for text in texts], self._device)
        mask = self._cache.mask()
        if self._eager:  # adds its mask to the scores
            mask = torch.zeros(mask.shape, device=self._device).masked_fill(~mask, torch.finfo(torch.float32).min)
        tokens = torch.tensor([text.tokens[-1:] for text in texts], device=self._device)
        logits: torch.Tensor = self._call(tokens, self._cache.lengths[:, None], attention_mask=mask).logits[:, -1]
        return logits

    def open(self, slots: int, room: int) -> Slots:
        """A cache of at least this size, with what is being written."""
        if self._cache is None:
            from .slots import Slots

            self._cache = Slots(self._layers, slots, room)
        elif slots > self._cache.slots or room > self._cache.room:
            longest = max((len(text.tokens) for text in self._active), default=0)
            self._cache = self._cache.resized(slots, room, len(self._active), longest)
        return self._cache

    def _call(self, tokens: torch.Tensor, positions: torch.Tensor, **more: Any) -> Any:
        given = {"input_ids": tokens, "position_ids": positions, self._cache_name: self._cache, **more}
        return self._model(**given, use_cache=True, return_dict=True)

    def _take_in(self, waiting: deque[Text]) -> None:
        if not waiting:
            return
        slots = self._slots_for(max(text.most for text in (*self._active, waiting[0])))
        free = slots - len(self._active)
        if self._active and free < min(len(waiting), max(1, ROOM_AGAIN * slots)):
            return
        taken = [waiting.popleft() for _ in range(min(free, len(waiting)))]
        self.open(slots, max(text.most for text in (*self._active, *taken)))
        while taken:
            together = max(1, PROMPT_TOKENS // taken[0].begun)
            self.prefill(taken[:together], len(self._active))
            self._active += taken[:together]
            del taken[:together]

    def _slots_for(self, room: int) -> int:
        """Slots that there may be with this room; those there are, unless it is worth copying them into more."""
        slots = self._at_once if self._cache_tokens is None else max(1, min(self._at_once, self._cache_tokens // room))
        here = self._cache.slots if self._cache is not None and room <= self._cache.room else 0
        return max(slots, len(self._active)) if slots >= WORTH_COPYING * here else here

    def _let_go(self) -> None:
        """The slots in use stay the first ones: the last text moves into the place of one that has ended."""
        for place in reversed(range(len(self._active))):
            text = self._active[place]
            if not (text.ended(self._choice.decoding.ends) or self._stops.reached(text)):
                continue
            last = self._active.pop()
            if last is not text:
                assert self._cache is not None
                self._cache.move(len(self._active), place, len(last.tokens) - 1)
                self._active[place] = last
