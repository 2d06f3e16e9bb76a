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
        default=None,
        metadata=about(
            "Longest text to generate, in tokens, without the prompt of a decoder-only model. Not given: the model's."
        ),
    )
    generation_num_beams: int | None = field(
        default=None, metadata=about("Beams of the search; 1: greedy. Not given: the model's.")
    )
    generation_config: str | Path | Any | None = field(
        default=None,
        metadata=about(
            "Decoding settings: a GenerationConfig, a dict of them, a folder that has one, or a name on the hub."
        ),
    )
    generation_max_rows: int = field(
        default=500,
        metadata=about(
            "Rows of an evaluation that texts are generated for, spread over the dataset; 0: all. The loss is of all "
            "rows, and `predict` generates for every one."
        ),
    )
    generation_prompt_column: str | None = field(
        default=None,
        metadata=about(
            "Column with the prompts of a decoder-only model: texts, token ids or chat messages. Not given: what "
            "stands before the first label of a row."
        ),
    )
    generation_texts_shown: int = field(
        default=3, metadata=about("Generated texts that are shown after an evaluation; all are in `texts/`.")
    )
    sortish_sampler: bool = field(default=False, metadata=about("Order the training rows roughly by length."))
