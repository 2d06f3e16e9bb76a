"""The lengths of all rows of a dataset at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrow_rows import ArrowRows
from .blocks import Block
from .lengths import real_length
from .table import CHUNK, Chunk, chunks, is_table

Integers = NDArray[np.int64]


def lengths_of(dataset: Any, is_encoder_decoder: bool = False, length_column: str | None = None) -> list[int] | None:
    """The `real_length` of each row of a list or a table, or the column of lengths where there is one.

    A table is read as Arrow arrays, 10,000 rows at a time: masks are summed, and without them offsets tell the lengths.
    None where a row has no tokens, and for datasets that compute their rows, at random or at a price.
    """
    if length_column is not None and length_column in (getattr(dataset, "column_names", None) or ()):
        return list(dataset[length_column])
    if is_table(dataset):
        return _of_table(dataset, is_encoder_decoder)
    if isinstance(dataset, (list, tuple)):
        return all_known([real_length(row, is_encoder_decoder) for row in dataset])
    return None


def all_known(lengths: Sequence[int | None]) -> list[int] | None:
    """The lengths, or None where one of them is not known."""
    known = [length for length in lengths if length is not None]
    return known if len(known) == len(lengths) else None


def _of_table(dataset: Any, is_encoder_decoder: bool) -> list[int] | None:
    # a format may hide columns from those who read rows
    shown = dataset.column_names if isinstance(dataset, ArrowRows) else dataset.format["columns"]
    if "input_ids" not in shown:
        return None
    beside = ["labels"] if is_encoder_decoder and "labels" in shown else []
    if "attention_mask" in shown:  # of rows that were shuffled every value is moved: the mask alone is the least
        lengths = _of_columns(dataset, ["attention_mask", *beside])
        if lengths is not None:
            return lengths
    return _of_columns(dataset, ["input_ids", *{"attention_mask"}.intersection(shown), *beside])


def _of_columns(dataset: Any, columns: list[str]) -> list[int] | None:
    found: list[int] = []
    for chunk in chunks(dataset, columns):
        lengths = _of_chunk(chunk, np.arange(len(found), min(len(found) + CHUNK, len(dataset))))
        if lengths is None:
            return None
        found += lengths.tolist()
    return found


def _of_chunk(chunk: Chunk, rows: Integers) -> Integers | None:
    """The lengths of these rows; None where the columns do not tell the length of one."""
    ids, mask, labels = (chunk.get(name) for name in ("input_ids", "attention_mask", "labels"))
    first = mask if ids is None else ids
    if first is None or first.lengths is None or len(first.missing):
        return None
    lengths = np.zeros(len(rows), dtype=np.int64)
    if ids is not None and ids.lengths is not None:
        lengths = _padded_together(ids.owners, ids.lengths, rows)
    if mask is not None and mask.lengths is not None:
        attended = _padded_together(mask.owners, _attended(mask), rows)
        lengths = np.where(np.isin(rows, mask.missing), lengths, attended)
    if labels is not None and labels.lengths is not None:
        np.add.at(lengths, labels.owners - rows[0], labels.lengths)
    return lengths


def _attended(mask: Block) -> Integers:
    """Entries of each sequence that are not 0."""
    assert mask.lengths is not None
    before = np.concatenate([[0], np.cumsum(mask.values != 0)])
    attended: Integers = before[mask.starts + mask.lengths] - before[mask.starts]
    return attended


def _padded_together(owners: Integers, sequences: Integers, rows: Integers) -> Integers:
    """For each row the number of its sequences times the longest of them; 0 for a row that has none."""
    longest = np.zeros(len(rows), dtype=np.int64)
    np.maximum.at(longest, owners - rows[0], sequences)
    return longest * np.bincount(owners - rows[0], minlength=len(rows))
