"""Whether a model can be decoded here: found out on two short prompts, by comparing with the plain model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Any

import torch

from .choosing import Choice
from .continuous import Continuous
from .decoding import Decoding
from .lockstep import Lockstep
from .unfinished import Stops, Text

logger = logging.getLogger(__name__)

LENGTHS = (11, 6)
"""Tokens of the two prompts."""

STEPS = 3
"""Tokens that are given one by one."""

ROUNDING = 1e-4
ROUNDING_OF_SHORT_TYPES = 0.05
"""The same for bfloat16, float16 and quantised weights."""


@dataclass(frozen=True)
class Fit:
    """What was found out of a decoder-only model."""

    layers: int
    """Of its cache."""
    window: int | None
    """Tokens that the narrowest of its layers attends to; None for all."""
    bytes_per_token: int
    """Of its cache."""


def slots_fit(model: Any, forward: Collection[str], prompts: Sequence[Sequence[int]]) -> Fit | None:
    """Whether `Continuous` computes what the model does; None where it does not.

    Args:
        prompts: tokens that the model may meet; the two prompts are made of them.
    """
    return _tried(model, lambda: _try_slots(model, forward, list(_examples(prompts))))


def lockstep_fits(
    model: Any, forward: Collection[str], pad_id: int, start: int, prompts: Sequence[Sequence[int]]
) -> bool:
    """Whether `Lockstep` computes what the model does."""
    return bool(_tried(model, lambda: _try_lockstep(model, forward, pad_id, start, list(_examples(prompts)))))


def _tried(model: Any, attempt: Callable[[], Any]) -> Any:
    try:
        found = attempt()
    except Exception as error:
        logger.debug("%s cannot be decoded token by token here: %s", type(model).__name__, error)
        return None
    if not found:
        logger.debug("%s computes something else where it is decoded here.", type(model).__name__)
    return found


def _try_slots(model: Any, forward: Collection[str], rows: list[list[int]]) -> Fit | None:
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    layers = DynamicCache(config=model.config).layers
    if not layers or any(type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers):
        return None
    windows = [layer.sliding_window for layer in layers if isinstance(layer, DynamicSlidingWindowLayer)]
    trial = Continuous(model, forward, len(layers), _no_choice(), Stops((), None), at_once=len(rows))
    texts = [Text(i, row[:-STEPS], 1, len(row), 0) for i, row in enumerate(rows)]
    cache = trial.open(len(rows), max(LENGTHS))
    trial.prefill(texts, 0)
    for step in range(STEPS, 0, -1):
        logits = trial.step(texts)
        for text, row in zip(texts, rows, strict=True):
            text.tokens.append(row[-step])
    logits = trial.step(texts)
    expected = [_plain(model, input_ids=_batch(model, row)) for row in rows]
    if not _alike(model, logits, torch.stack(expected)):
        return None
    return Fit(len(layers), min(windows, default=None), cache.bytes_per_token)


def _try_lockstep(model: Any, forward: Collection[str], pad_id: int, start: int, rows: list[list[int]]) -> bool:
    trial = Lockstep(model, forward, pad_id, _no_choice(), Stops((), None))
    read = trial.read(rows)
    texts = [[start, *row[:STEPS]] for row in rows]
    for step in range(STEPS + 1):
        logits = trial.step(read, [text[step] for text in texts])
    expected = [
        _plain(model, input_ids=_batch(model, row), decoder_input_ids=_batch(model, text))
        for row, text in zip(rows, texts, strict=True)
    ]
    return _alike(model, logits, torch.stack(expected))


def _examples(prompts: Sequence[Sequence[int]]) -> Any:
    tokens = cycle(chain.from_iterable(prompts))
    return (list(islice(tokens, length)) for length in LENGTHS)


def _plain(model: Any, **inputs: torch.Tensor) -> torch.Tensor:
    """Logits after the last token of a row alone, without a cache."""
    mask = torch.ones_like(inputs["input_ids"])
    logits: torch.Tensor = model(**inputs, attention_mask=mask, use_cache=False, return_dict=True).logits[0, -1]
    return logits


def _batch(model: Any, row: list[int]) -> torch.Tensor:
    return torch.tensor([row], device=model.device)


def _alike(model: Any, found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal but for rounding, relative to the largest logit."""
    types = {next(model.parameters()).dtype, found.dtype}
    exact = types == {torch.float32} and not torch.is_autocast_enabled(found.device.type)
    gap = (found.float() - expected.float()).abs().max()
    return bool(gap <= (ROUNDING if exact else ROUNDING_OF_SHORT_TYPES) * expected.float().abs().max())


def _no_choice() -> Choice:
    return Choice(Decoding(None, None, None, 0, (), (), None), 0)
