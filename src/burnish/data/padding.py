"""Rows to tensors: columns of a batch, stacked where they are even and padded where they may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from burnish.core.errors import DataError, SettingError
from burnish.core.types import IGNORED_LABEL, Inputs

Sequences = Sequence[torch.Tensor] | torch.Tensor
"""Tensors of shape (length,), or those of one length as a tensor (rows, length)."""

Pad = Callable[[str, Sequences], torch.Tensor]
"""Makes one tensor of a column's sequences of whole numbers, given the name of the column."""

WAY_OUT = "Pass a `data_collator` that pads it, or `processing_class=` (a tokenizer or feature extractor)."


@dataclass(frozen=True)
class PaddingCollator:
    """Collates rows without a tokenizer: stacks even columns, and pads ragged sequences of whole numbers.

    Padding is `pad_token_id` for token ids, 0 for masks and segments, -100 for labels. Where token ids are ragged and
    the rows have no `attention_mask`, one is made, so that the padding is never attended to.

    Args:
        pad_token_id: the id to pad token ids with; 0 where it is None, which the mask makes harmless.
        padding_side: "right" or "left".
    """

    pad_token_id: int | None = None
    padding_side: str = "right"

    def __call__(self, features: Sequence[Any]) -> Inputs:
        """Tensors of shape (rows, ...) by column. Raises `DataError` for a column that cannot become one."""
        columns = columns_of(features)
        batch = {name: as_tensor(name, values, self._pad) for name, values in columns.items()}
        if "input_ids" in columns and "attention_mask" not in columns:
            lengths = [len(ids) if np.ndim(ids) else 0 for ids in columns["input_ids"]]
            if len(set(lengths)) > 1:
                batch["attention_mask"] = mask_of(lengths, self.padding_side)
        return batch

    def _pad(self, name: str, values: Sequences) -> torch.Tensor:
        return padded(values, pad_value(name, self.pad_token_id), self.padding_side)


def columns_of(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """The values of a batch by column. `label` and `label_ids` become `labels`; what cannot be a number (text, or
    None in every row) is left out. Raises `DataError` for a column that only some rows have, and for labels of text.
    """
    mappings = [_as_mapping(row, i) for i, row in enumerate(rows)]
    columns = {}
    for name in dict.fromkeys(name for row in mappings for name in row):
        values = [row.get(name) for row in mappings]
        absent = [i for i, value in enumerate(values) if value is None]
        if len(absent) == len(values) or (_is_text(values) and not is_label(name)):
            continue
        if _is_text(values):
            raise DataError(f"Column `{name}` is text ({values[0]!r} in row 0 of the batch): map labels to numbers.")
        if absent:
            raise DataError(f"Column `{name}` has no value in row {absent[0]} of the batch, but in others it has one.")
        columns[name] = values
    return _with_labels(columns)


def is_label(name: str) -> bool:
    return "label" in name


def as_tensor(name: str, values: list[Any], pad: Pad | None = None) -> torch.Tensor:
    """One tensor of a column's values, one a row. Labels become int64, or float32 if they have fractions."""
    whole = _at_once(values)
    if whole is not None:
        stacked = whole if pad is None or whole.ndim != 2 or not _is_whole(whole) else pad(name, whole)
    else:
        stacked = _one_by_one(name, values, pad)
    if is_label(name):
        return stacked.float() if stacked.is_floating_point() else stacked.long()
    return stacked


def _one_by_one(name: str, values: list[Any], pad: Pad | None) -> torch.Tensor:
    """One tensor of values of any kind: stacked, or padded where they are sequences of whole numbers."""
    tensors = [_tensor(name, value, i) for i, value in enumerate(values)]
    uneven = next((i for i, tensor in enumerate(tensors) if tensor.shape != tensors[0].shape), None)
    if pad is not None and all(tensor.ndim == 1 and _is_whole(tensor) for tensor in tensors):
        return pad(name, tensors)
    if uneven is None:
        return torch.stack(tensors)
    raise DataError(
        f"Column `{name}` is ragged: row 0 of the batch has {_size(tensors[0])}, row {uneven} has "
        f"{_size(tensors[uneven])}. {WAY_OUT}"
    )


def padded(values: Sequences, value: int, side: str, length: int = 0) -> torch.Tensor:
    """Sequences as one tensor (rows, longest, but at least `length`), filled up with `value`."""
    if isinstance(values, torch.Tensor) and values.shape[1] >= max(length, 1):
        return values
    width = max(*(len(sequence) for sequence in values), length)
    if all(len(sequence) == width > 0 for sequence in values):
        return torch.stack(list(values))
    kind = next((sequence.dtype for sequence in values if len(sequence)), torch.long)  # an empty list has no type
    result = torch.full((len(values), width), value, dtype=kind)
    for row, sequence in zip(result, values, strict=True):
        if side == "right":
            row[: len(sequence)] = sequence
        else:
            row[len(row) - len(sequence) :] = sequence
    return result


def mask_of(lengths: Sequence[int], side: str) -> torch.Tensor:
    """The attention mask (rows, longest), int64, of sequences of these lengths."""
    return padded([torch.ones(length, dtype=torch.long) for length in lengths], 0, side)


def pad_value(name: str, pad_token_id: int | None, label_pad: int = IGNORED_LABEL) -> int:
    """What a column is padded with, by its name."""
    if name.endswith("input_ids"):
        return pad_token_id or 0
    if name == "special_tokens_mask":
        return 1
    return label_pad if is_label(name) else 0


Batch = TypeVar("Batch", bound=MutableMapping[str, Any])


def in_framework(batch: Batch, return_tensors: str) -> Batch:
    """The batch as it was asked for: "pt" for torch, "np" for numpy."""
    if return_tensors not in ("pt", "np"):
        raise SettingError(f"return_tensors={return_tensors!r} is unknown here: use 'pt' (torch) or 'np' (numpy).")
    if return_tensors == "np":
        for name, value in list(batch.items()):
            batch[name] = value.numpy() if isinstance(value, torch.Tensor) else value
    return batch


def _as_mapping(row: Any, position: int) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    if hasattr(row, "_asdict"):  # a named tuple
        fields: Mapping[str, Any] = row._asdict()
        return fields
    try:
        attributes: Mapping[str, Any] = vars(row)
        return attributes
    except TypeError:
        raise DataError(
            f"Row {position} of the batch is a {type(row).__name__}, so its values have no names. Let the dataset give "
            'dicts such as {"input_ids": …, "labels": …}, or pass a `data_collator` that makes a dict of such rows.'
        ) from None


def _with_labels(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    for alias in ("label", "label_ids"):
        if alias in columns:
            values = columns.pop(alias)
            columns.setdefault("labels", values)
    return columns


def _is_text(values: list[Any]) -> bool:
    """Whether a column holds text, or lists of texts."""
    value = next((value for value in values if value is not None), None)
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, (str, bytes))


def _at_once(values: list[Any]) -> torch.Tensor | None:
    """Numbers, or lists of numbers of one length, as one tensor in one call: what most columns are, and several times
    faster than row by row. None for anything else."""
    first = values[0]
    if type(first) is list:
        if not first or type(first[0]) not in _NUMBERS:
            return None
        even = all(type(value) is list and len(value) == len(first) for value in values)
    else:
        even = all(type(value) in _NUMBERS for value in values)
    try:
        return _numbers(values) if even else None
    except (TypeError, ValueError, RuntimeError):
        return None  # row by row, the row that is wrong is found


def _numbers(values: list[Any]) -> torch.Tensor:
    """As torch reads them. Whole numbers are read by numpy, in a fifth of the time."""
    first = values[0][0] if type(values[0]) is list else values[0]
    array = np.array(values) if type(first) is int else None
    return torch.tensor(values) if array is None or array.dtype != np.int64 else torch.from_numpy(array)


_NUMBERS = (int, float, bool)


def _tensor(name: str, value: Any, position: int) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    try:
        if isinstance(value, list) and value and isinstance(value[0], (np.ndarray, torch.Tensor)):
            value = np.stack([np.asarray(part) for part in value])  # as_tensor is slow on lists of arrays
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"Column `{name}` cannot become a tensor: {error} (row {position} of the batch, a {type(value).__name__}). "
            f"{WAY_OUT}"
        ) from error


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whole numbers; an empty list counts, since torch takes it for floating point."""
    return tensor.numel() == 0 or not tensor.is_floating_point()


def _size(tensor: torch.Tensor) -> str:
    return f"{len(tensor)} values" if tensor.ndim == 1 else f"shape {tuple(tensor.shape)}"
