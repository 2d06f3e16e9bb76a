"""Texts for prompts, by the fastest way that gives the same texts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from burnish.core.errors import SettingError
from burnish.core.modes import in_evaluation

from .choosing import Choice
from .continuous import Continuous
from .decoding import Asked, Decoding
from .fits import Fit, lockstep_fits, slots_fit
from .library import Library
from .lockstep import Lockstep
from .prompts import by_length
from .unfinished import Stops, Text

if TYPE_CHECKING:
    from burnish.models.contract import ModelFacts

logger = logging.getLogger(__name__)

AT_ONCE = 64
"""Texts at once on a CPU: from here on a step costs in proportion to its texts."""

CACHE_BYTES = 2**29
"""Size of the cache on a CPU at the most. With SmolLM2, twice as much is slower: unlike lengths share a step then."""

SOURCE_POSITIONS = 8192
"""Positions of sources that an encoder reads at once."""


@dataclass(frozen=True)
class Request:
    """What is to be written.

    Args:
        prompts: tokens; sources of an encoder-decoder. None of them is empty.
        rows: their numbers in the dataset.
        settings: arguments of `generate`.
        tokenizer: finds stop strings; may be None.
        pad_id: what fills up shorter rows.
        seed: what draws follow from.
    """

    prompts: Sequence[Sequence[int]]
    rows: Sequence[int]
    settings: Mapping[str, Any]
    tokenizer: Any
    pad_id: int
    seed: int

    def texts(self, start: Sequence[int] | None, decoding: Decoding, positions: int | None) -> list[Text]:
        """A text for each prompt: behind it, or behind the first token of a decoder. Raises `DataError`."""
        beginnings = self.prompts if start is None else [start] * len(self.prompts)
        return [Text.of(row, begun, decoding, positions) for row, begun in zip(self.rows, beginnings, strict=True)]


@dataclass
class Writer:
    """Writes a text for each prompt. Whether the model can be decoded here is found out once.

    Args:
        model: with its `generate`; adapters are no matter.
        facts: what it accepts.
        at_once: texts at once at the most.
    """

    model: Any
    facts: ModelFacts
    at_once: int = AT_ONCE
    fit: Fit | bool | None = None
    """What was found out; None where nothing was yet, False where the model's own `generate` is needed."""

    def write(self, request: Request) -> list[list[int]]:
        """The new tokens of each text, with the one that ends it, in the order of the prompts.

        Raises:
            DataError: a prompt leaves no room to write.
            SettingError: stop strings are set and there is no tokenizer.
        """
        if not request.prompts:
            return []
        asked = Asked(self.model, request.settings)
        decoding = asked.decoding()
        if decoding.stop_strings and request.tokenizer is None:
            raise SettingError("stop_strings are found in texts, so Trainer needs processing_class=tokenizer.")
        with torch.no_grad(), in_evaluation(self.model):
            if further := asked.further():
                logger.info("Texts are decoded by model.generate, for %s.", further)
                return self._by_library(request)
            if self.facts.is_encoder_decoder:
                return self._in_lockstep(request, decoding)
            return self._continuously(request, decoding)

    def _continuously(self, request: Request, decoding: Decoding) -> list[list[int]]:
        fit = self._found(lambda: slots_fit(self.model, self.facts.accepts, request.prompts))
        texts = request.texts(None, decoding, self.facts.max_positions)
        longest = max(text.most for text in texts)
        if not isinstance(fit, Fit) or (fit.window is not None and fit.window < longest):
            return self._by_library(request)
        choice, stops = Choice(decoding, request.seed), Stops(decoding.stop_strings, request.tokenizer)
        tokens = CACHE_BYTES // fit.bytes_per_token if self.model.device.type == "cpu" else None
        Continuous(self.model, self.facts.accepts, fit.layers, choice, stops, self.at_once, tokens).write(texts)
        return [text.written for text in texts]

    def _in_lockstep(self, request: Request, decoding: Decoding) -> list[list[int]]:
        names, pad, start = self.facts.accepts, request.pad_id, self._start(request)
        if start is None or not self._found(
            lambda: lockstep_fits(self.model, names, pad, start, request.prompts),
        ):
            return self._by_library(request)
        choice, stops = Choice(decoding, request.seed), Stops(decoding.stop_strings, request.tokenizer)
        decoder = Lockstep(self.model, names, pad, choice, stops)
        texts = request.texts([start], decoding, self.facts.max_positions)
        for batch in by_length(request.prompts, self.at_once, SOURCE_POSITIONS):
            decoder.write([request.prompts[i] for i in batch], [texts[i] for i in batch])
        return [text.written for text in texts]

    def _by_library(self, request: Request) -> list[list[int]]:
        settings = request.settings
        if Asked(self.model, settings).get("stop_strings"):
            settings = {**settings, "tokenizer": request.tokenizer}
        library = Library(
            self.model, self.facts.is_encoder_decoder, settings, request.pad_id, request.seed, self.at_once
        )
        return library.write(request.prompts, request.rows)

    def _start(self, request: Request) -> int | None:
        """The first token of a decoder, where there is one for all rows."""
        asked = Asked(self.model, request.settings)
        start = asked.get("decoder_start_token_id", getattr(self.model.config, "decoder_start_token_id", None))
        start = asked.get("bos_token_id") if start is None else start
        return start if isinstance(start, int) else None

    def _found(self, attempt: Callable[[], Fit | bool | None]) -> Fit | bool:
        """The result of the one trial of this model."""
        if self.fit is None:
            self.fit = attempt() or False
            if not self.fit:
                logger.info("Texts are decoded by model.generate, which %s needs.", self.facts.name)
        return self.fit
