"""Small real objects that tests share: seeded models without dropout, a tokenizer, and rows.

Models come from transformers, are built in memory from a fixed seed, and take milliseconds a step on one core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

NUM_WORDS = 96
PAD, UNK, CLS, SEP, MASK = range(5)
FIRST_WORD = 5
MAX_LENGTH = 24
"""Longest row made here, and positions that the encoders have."""

Row = dict[str, Any]


def seeded(build: Callable[[], nn.Module], seed: int = 0) -> Any:
    """What `build` makes from this seed."""
    torch.manual_seed(seed)
    return build()


# ---------------------------------------------------------------- models


def bert_config(**changes: Any) -> transformers.BertConfig:
    shape = {"vocab_size": NUM_WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    size = {"intermediate_size": 64, "max_position_embeddings": MAX_LENGTH}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertConfig(**{**shape, **size, **dropout, "pad_token_id": PAD, **changes})


def bert(head: str, **changes: Any) -> Any:
    """A tiny BERT with the head of this name, such as "SequenceClassification"."""
    return seeded(lambda: getattr(transformers, f"BertFor{head}")(bert_config(**changes)))


def llama(**changes: Any) -> Any:
    shape = {"vocab_size": NUM_WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    tokens = {"pad_token_id": PAD, "bos_token_id": CLS, "eos_token_id": SEP}
    config = transformers.LlamaConfig(
        **{**shape, "num_key_value_heads": 1, "intermediate_size": 64, **tokens, **changes}
    )
    return seeded(lambda: transformers.LlamaForCausalLM(config))


def t5(**changes: Any) -> Any:
    shape = {"vocab_size": NUM_WORDS, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
    tokens = {"pad_token_id": PAD, "eos_token_id": SEP, "decoder_start_token_id": PAD}
    config = transformers.T5Config(**{**shape, "dropout_rate": 0.0, **tokens, **changes})
    return seeded(lambda: transformers.T5ForConditionalGeneration(config))


def tokenizer(**changes: Any) -> transformers.PreTrainedTokenizerFast:
    """One token a word: w5 to w95, after the special tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = special + [f"w{number}" for number in range(FIRST_WORD, NUM_WORDS)]
    core = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, **{**names, **changes})


# ---------------------------------------------------------------- rows


def words(count: int, seed: int) -> list[int]:
    """`count` token ids, special tokens left out."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(FIRST_WORD, NUM_WORDS, (count,), generator=draw).tolist()


def length_of(row: int) -> int:
    """Tokens of row number `row`: from 4 to MAX_LENGTH, neighbours far apart."""
    return 4 + (row * 13) % (MAX_LENGTH - 3)


def text_rows(count: int) -> list[Row]:
    """Rows of unequal length without labels."""
    return [{"input_ids": words(length_of(row), row), "attention_mask": [1] * length_of(row)} for row in range(count)]


def class_rows(count: int, num_labels: int = 2) -> list[Row]:
    return [{**row, "labels": number % num_labels} for number, row in enumerate(text_rows(count))]


def tag_rows(count: int, num_labels: int = 3) -> list[Row]:
    """A label for each token but the first of a row."""
    return [
        {**row, "labels": [-100] + [token % num_labels for token in row["input_ids"][1:]]} for row in text_rows(count)
    ]


def language_rows(count: int) -> list[Row]:
    """Rows for a causal model; a prompt of 0 to 3 tokens carries no loss."""
    rows = []
    for number, row in enumerate(text_rows(count)):
        prompt = number % 4
        rows.append({**row, "labels": [-100] * prompt + row["input_ids"][prompt:]})
    return rows


def pair_rows(count: int) -> list[Row]:
    """Rows for an encoder-decoder: the target is the reversed start of the source, and the end of text."""
    return [
        {**row, "labels": [*row["input_ids"][3::-1], SEP][number % 3 :]} for number, row in enumerate(text_rows(count))
    ]
