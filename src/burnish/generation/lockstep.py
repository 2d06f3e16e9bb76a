"""Encoder-decoder models: the sources of a batch are read at once, and the texts written token by token.

Texts that have ended leave the batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from .choosing import Choice
from .prompts import filled_up
from .unfinished import Stops, Text

ENDED = 0.125
"""Share of texts that have ended before the others are moved together: that copies the cache."""


class Lockstep:
    """Writes texts.

    Args:
        model: as it is called; in evaluation mode.
        forward: names of arguments of its `forward`: "cache" or "past_key_values".
        pad_id: what fills up shorter sources; it is not attended to.
    """

    def __init__(self, model: Any, forward: Collection[str], pad_id: int, choice: Choice, stops: Stops) -> None:
        self._model, self._pad_id, self._choice, self._stops = model, pad_id, choice, stops
        self._cache_name = "cache" if "cache" in forward else "past_key_values"

    def write(self, sources: Sequence[Sequence[int]], texts: Sequence[Text]) -> None:
        """Writes each text to its end."""
        active = list(texts)
        read = self.read(sources)
        places = list(range(len(active)))  # of the active texts in the batch that goes through the model
        while active:
            logits = self.step(read, [text.tokens[-1] for text in texts])
            tokens = self._choice.next_tokens(logits if len(active) == len(texts) else logits[places], active)
            for text, token in zip(active, tokens, strict=True):
                text.tokens.append(token)
            going_on = [(text, place) for text, place in zip(active, places, strict=True) if not self._ended(text)]
            active, places = [text for text, _ in going_on], [place for _, place in going_on]
            if active and len(active) <= (1 - ENDED) * len(texts):
                self._keep(read, places)
                texts, places = active, list(range(len(active)))

    def read(self, sources: Sequence[Sequence[int]]) -> dict[str, Any]:
        """What the encoder makes of a batch, and an empty cache."""
        from transformers.cache_utils import DynamicCache, EncoderDecoderCache

        device = self._model.device
        ids, mask = (part.to(device) for part in filled_up(sources, self._pad_id, "right"))
        config = self._model.config.get_text_config(decoder=True)
        return {
            "encoder_outputs": self._model.get_encoder()(input_ids=ids, attention_mask=mask, return_dict=True),
            "attention_mask": mask,
            self._cache_name: EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config)),
        }

    def step(self, read: dict[str, Any], tokens: Sequence[int]) -> torch.Tensor:
        """Logits (texts, vocabulary) of what follows these tokens, one for each text of the batch."""
        ids = torch.tensor(tokens, device=self._model.device)[:, None]
        logits: torch.Tensor = self._model(**read, decoder_input_ids=ids, use_cache=True, return_dict=True).logits
        return logits[:, -1]

    def _ended(self, text: Text) -> bool:
        return text.ended(self._choice.decoding.ends) or self._stops.reached(text)

    def _keep(self, read: dict[str, Any], places: list[int]) -> None:
        kept = torch.tensor(places, device=self._model.device)
        read[self._cache_name].batch_select_indices(kept)
        read["attention_mask"] = read["attention_mask"][kept]
        outputs = read["encoder_outputs"]
        for name, value in outputs.items():
            if isinstance(value, torch.Tensor):
                outputs[name] = value[kept]
