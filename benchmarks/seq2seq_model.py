"""An encoder-decoder in the shape of T5, from random weights, and sentences of reviews, each with the next one."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import reviews


@cache
def tokenizer() -> Any:
    return reviews.tokenizer()


def model(dropout: float) -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=len(tokenizer()),
        d_model=256,
        d_kv=64,
        d_ff=1024,
        num_layers=4,
        num_heads=4,
        dropout_rate=dropout,
        pad_token_id=tokenizer().pad_token_id,
        eos_token_id=tokenizer().sep_token_id,
        decoder_start_token_id=tokenizer().pad_token_id,
    )
    return transformers.T5ForConditionalGeneration(config)


def pairs(count: int | None = None) -> Any:
    """Rows with `input_ids`, `attention_mask` and `labels`, in an order drawn once; the first so many."""
    import datasets

    encoded = tokenizer()(reviews.sentences(), truncation=True, max_length=128)["input_ids"]
    rows = datasets.Dataset.from_list(
        [{"input_ids": one, "attention_mask": [1] * len(one), "labels": two} for one, two in pairwise(encoded)]
    ).shuffle(seed=0)
    return rows if count is None else rows.select(range(count))


def collator(of_model: Any) -> Any:
    import transformers

    return transformers.DataCollatorForSeq2Seq(tokenizer(), model=of_model)
