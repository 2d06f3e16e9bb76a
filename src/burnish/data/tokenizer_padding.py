"""Padding by a tokenizer or feature extractor, of what it knows, and of the other columns beside it."""

from __future__ import annotations

from typing import Any

import torch

from burnish.core.errors import DataError
from burnish.core.types import IGNORED_LABEL

from .padding import Sequences, as_tensor, pad_value, padded

PADDED_BY_TOKENIZERS = ("attention_mask", "token_type_ids", "special_tokens_mask", "global_attention_mask", "bbox")
"""Columns that tokenizers pad where they know them at all, beside their `model_input_names`."""


def pad_with_tokenizer(
    tokenizer: Any,
    columns: dict[str, list[Any]],
    padding: bool | str = True,
    max_length: int | None = None,
    pad_to_multiple_of: int | None = None,
    label_pad: int = IGNORED_LABEL,
) -> Any:
    """The columns of a batch as tensors (rows, length).

    The tokenizer pads its own columns and makes an attention mask. Other sequences of whole numbers are padded here:
    to the length of the tokens if they have one value a token, else to their longest. Returns a `BatchEncoding`.
    """
    main = tokenizer.model_input_names[0]
    if main not in columns:
        raise DataError(
            f"The rows have no `{main}`, only {sorted(columns)}, so there is nothing to pad. Tokenise the dataset "
            "first: dataset.map(lambda row: tokenizer(row['text'], truncation=True))."
        )
    known = {*tokenizer.model_input_names, *PADDED_BY_TOKENIZERS}
    batch = tokenizer.pad(
        {name: values for name, values in columns.items() if name in known},
        padding=padding,
        max_length=max_length,
        pad_to_multiple_of=pad_to_multiple_of,
        return_tensors="pt",
    )
    pad = _Beside(tokenizer, columns[main], batch[main].shape[1], label_pad)
    for name, values in columns.items():
        if name not in known:
            batch[name] = as_tensor(name, values, pad)
    return batch


class _Beside:
    """Pads a column beside the tokens, on the same side."""

    def __init__(self, tokenizer: Any, tokens: list[Any], width: int, label_pad: int) -> None:
        self.tokenizer, self.width, self.label_pad = tokenizer, width, label_pad
        self.lengths = [len(row) for row in tokens]

    def __call__(self, name: str, values: Sequences) -> torch.Tensor:
        one_a_token = [len(sequence) for sequence in values] == self.lengths
        value = pad_value(name, getattr(self.tokenizer, "pad_token_id", None), self.label_pad)
        return padded(values, value, self.tokenizer.padding_side, self.width if one_a_token else 0)
