"""Evaluation of models that write text."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .declare import about


# Without a repr of its own, so that the one of all settings, which hides tokens, stays.
@dataclass(repr=False)
class Seq2SeqFields:
    predict_with_generate: bool = field(
        default=False, metadata=about("Evaluate on generated text instead of on logits.")
    )
    generation_max_length: int | None = field(
        default=None, metadata=about("Longest text to generate, in tokens. Not given: the model's.")
    )
    generation_num_beams: int | None = field(
        default=None, metadata=about("Beams of the search; 1: greedy. Not given: the model's.")
    )
    generation_config: str | Path | Any | None = field(
        default=None,
        metadata=about("Decoding settings: a GenerationConfig, a model folder that has one, or a name on the hub."),
    )
    sortish_sampler: bool = field(default=False, metadata=about("Order the training rows roughly by length."))
