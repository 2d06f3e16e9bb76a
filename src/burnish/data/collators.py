"""Collators under the names that users know. Labels come out as `labels`, padding never carries loss.

`features` are rows: mappings, or objects with attributes. The result maps column names to tensors (rows, length).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from burnish.core.errors import DataError
from burnish.core.types import IGNORED_LABEL, Inputs

from .padding import PaddingCollator, as_tensor, columns_of, in_framework, padded
from .tokenizer_padding import pad_with_tokenizer


def default_data_collator(features: Sequence[Any], return_tensors: str = "pt") -> Inputs:
    """Stacks the values of each column. Raises `DataError` where rows have different lengths: nothing is padded."""
    columns = columns_of(features)
    return in_framework({name: as_tensor(name, values) for name, values in columns.items()}, return_tensors)


@dataclass
class DefaultDataCollator:
    """`default_data_collator` as an object."""

    return_tensors: str = "pt"

    def __call__(self, features: Sequence[Any], return_tensors: str | None = None) -> Inputs:
        return default_data_collator(features, return_tensors or self.return_tensors)


@dataclass
class DataCollatorWithPadding:
    """Pads what the tokenizer knows with the tokenizer, labels with -100, further whole numbers with 0.

    Args:
        tokenizer: a tokenizer or feature extractor; its `padding_side` counts.
        padding: True or "longest", "max_length", False or "do_not_pad".
        max_length: tokens to pad to with "max_length"; the tokenizer's own limit where None.
        pad_to_multiple_of: rounds the padded length up.
        return_tensors: "pt" or "np".
    """

    tokenizer: Any
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"

    def __call__(self, features: Sequence[Any], return_tensors: str | None = None) -> Any:
        columns = columns_of(features)
        batch = pad_with_tokenizer(self.tokenizer, columns, self.padding, self.max_length, self.pad_to_multiple_of)
        return in_framework(batch, return_tensors or self.return_tensors)


@dataclass
class DataCollatorForTokenClassification:
    """Pads inputs with the tokenizer, and one label a token to the same length.

    Args: as for `DataCollatorWithPadding`, and `label_pad_token_id`: the label of padding.
    """

    tokenizer: Any
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    label_pad_token_id: int = IGNORED_LABEL
    return_tensors: str = "pt"

    def __call__(self, features: Sequence[Any], return_tensors: str | None = None) -> Any:
        columns = columns_of(features)
        _require_a_label_for_each_token(columns)
        settings = (self.padding, self.max_length, self.pad_to_multiple_of, self.label_pad_token_id)
        return in_framework(
            pad_with_tokenizer(self.tokenizer, columns, *settings), return_tensors or self.return_tensors
        )


@dataclass
class DataCollatorForSeq2Seq:
    """Pads inputs with the tokenizer, and the labels, which have a length of their own.

    Args: as for `DataCollatorWithPadding`, and
        model: if it has `prepare_decoder_input_ids_from_labels`, the batch gets `decoder_input_ids` made by it.
        label_pad_token_id: the label of padding.
    """

    tokenizer: Any
    model: Any = None
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    label_pad_token_id: int = IGNORED_LABEL
    return_tensors: str = "pt"

    def __call__(self, features: Sequence[Any], return_tensors: str | None = None) -> Any:
        columns = columns_of(features)
        labels = columns.pop("labels", None)
        batch = pad_with_tokenizer(self.tokenizer, columns, self.padding, self.max_length, self.pad_to_multiple_of)
        if labels is not None:
            batch["labels"] = self._padded_labels(labels)
            prepare = getattr(self.model, "prepare_decoder_input_ids_from_labels", None)
            if prepare is not None:
                batch["decoder_input_ids"] = prepare(labels=batch["labels"])
        return in_framework(batch, return_tensors or self.return_tensors)

    def _padded_labels(self, labels: list[Any]) -> torch.Tensor:
        if self.padding in (False, "do_not_pad"):
            return as_tensor("labels", labels)
        length = self.max_length if self.padding == "max_length" and self.max_length else 0
        length = _rounded_up(max(length, *map(len, labels)), self.pad_to_multiple_of)
        sequences = [torch.as_tensor(label, dtype=torch.long) for label in labels]
        return padded(sequences, self.label_pad_token_id, self.tokenizer.padding_side, length)


@dataclass
class DataCollatorForMultipleChoice:
    """Pads every choice of every row to one length. Columns of choices get the shape (rows, choices, length).

    Args: as for `DataCollatorWithPadding`.
    """

    tokenizer: Any
    padding: bool | str = True
    max_length: int | None = None
    pad_to_multiple_of: int | None = None
    return_tensors: str = "pt"

    def __call__(self, features: Sequence[Any], return_tensors: str | None = None) -> Inputs:
        columns = columns_of(features)
        of_choices = {name for name, values in columns.items() if _is_nested(values)}
        num_choices = _num_choices({name: columns[name] for name in of_choices})
        flat = {name: [choice for row in columns[name] for choice in row] for name in of_choices}
        padded_choices = pad_with_tokenizer(
            self.tokenizer, flat, self.padding, self.max_length, self.pad_to_multiple_of
        )
        batch = {name: tensor.view(len(features), num_choices, -1) for name, tensor in padded_choices.items()}
        rest = {name: as_tensor(name, values) for name, values in columns.items() if name not in of_choices}
        return in_framework({**batch, **rest}, return_tensors or self.return_tensors)


def default_collator_for(processing_class: Any, pad_token_id: int | None = None) -> Any:
    """What collates when the user names no collator: padding by the tokenizer or feature extractor, else our own.

    Args:
        processing_class: a tokenizer, feature extractor, image processor, processor, or None.
        pad_token_id: the model's, for when there is no tokenizer.
    """
    side = getattr(processing_class, "padding_side", None)  # image processors pad too, but pictures
    if side is None or not callable(getattr(processing_class, "pad", None)):
        return PaddingCollator(pad_token_id)
    if getattr(processing_class, "pad_token_id", 0) is None:  # GPT-2's tokenizer has no padding and refuses to pad
        return PaddingCollator(pad_token_id, side)
    return DataCollatorWithPadding(processing_class)


def _require_a_label_for_each_token(columns: dict[str, list[Any]]) -> None:
    for i, (ids, labels) in enumerate(zip(columns.get("input_ids", []), columns.get("labels", []), strict=False)):
        if np.ndim(labels) == 0 or len(labels) != len(ids):
            found = "a single label" if np.ndim(labels) == 0 else f"{len(labels)} labels"
            raise DataError(
                f"Row {i} of the batch has {len(ids)} tokens and {found}; each token needs one. Use -100 for tokens "
                "without a label, such as special tokens and later pieces of a word."
            )


def _is_nested(values: list[Any]) -> bool:
    """Whether each row has a list of sequences."""
    first = values[0]
    if isinstance(first, (list, tuple)):  # their sequences may have different lengths, which np.ndim refuses
        return len(first) > 0 and np.ndim(first[0]) > 0
    return np.ndim(first) > 1


def _num_choices(columns: dict[str, list[Any]]) -> int:
    """The number of choices, the same in every row and column."""
    counts = {(name, i): len(row) for name, values in columns.items() for i, row in enumerate(values)}
    if not counts:
        raise DataError("Rows of multiple choice need a list of sequences in `input_ids`, one for each choice.")
    (first, _), expected = next(iter(counts.items()))
    for (name, row), count in counts.items():
        if count != expected:
            raise DataError(
                f"Row {row} of the batch has {count} choices in `{name}`, but row 0 has {expected} in `{first}`. "
                "All rows of a batch need the same number of choices."
            )
    return expected


def _rounded_up(length: int, multiple: int | None) -> int:
    return length if not multiple else -(-length // multiple) * multiple
