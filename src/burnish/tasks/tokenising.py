"""Texts to token ids, once: the result is kept under a key made of the texts, the tokenizer and the settings."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from burnish.core.errors import SettingError
from burnish.data.arrow_arrays import of_lists, of_numbers
from burnish.data.arrow_rows import ArrowRows, arrow_chunks

from .cache import key_of, key_of_rows, stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .files import Rows, Table
    from .recipe import DataRequest

LENGTH = "num_tokens"
TRUNCATED = "was_truncated"
_MASKS = ("attention_mask", "token_type_ids", "special_tokens_mask")
_BATCH = 1000  # rows tokenised in one call


@dataclass(frozen=True)
class Lengths:
    """Tokens of each row, and how many rows were cut."""

    tokens: list[int]
    num_truncated: int
    max_length: int | None

    def notes(self) -> list[tuple[str, str]]:
        """What to show: shortest, median and longest row, and the share that was cut."""
        ordered = sorted(self.tokens)
        median = ordered[len(ordered) // 2]
        notes = [("lengths", f"{ordered[0]:,} to {ordered[-1]:,} tokens, median {median:,}")]
        if self.num_truncated:
            share = 100 * self.num_truncated / len(ordered)
            cut = f"{self.num_truncated:,} of {len(ordered):,} rows ({share:.1f} %) cut at {self.max_length:,} tokens"
            notes.append(("truncated", cut))
        else:
            notes.append(("truncated", "none"))
        return notes


@dataclass(frozen=True)
class TextTokeniser:
    """Tokenises batches of one or two texts a row."""

    tokenizer: Any
    columns: tuple[str, ...]
    max_length: int | None = None
    pad_to_max_length: bool = False

    def key(self) -> str:
        return key_of(identity_of(self.tokenizer), self.columns, self.max_length, self.pad_to_max_length)

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        texts = [[str(text) for text in batch[column]] for column in self.columns]
        encoded = self.tokenizer(
            *texts,
            truncation=self.max_length is not None,
            max_length=self.max_length,
            padding="max_length" if self.pad_to_max_length else False,
        )
        lengths = [sum(mask) for mask in encoded["attention_mask"]]
        return {**encoded, LENGTH: lengths, TRUNCATED: were_truncated(encoded, self.max_length)}


def were_truncated(encoded: Any, max_length: int | None) -> list[bool]:
    """Which rows of an encoded batch have lost tokens."""
    if encoded.encodings:  # only fast tokenizers say what they have cut away
        return [bool(encoding.overflowing) for encoding in encoded.encodings]
    return [max_length is not None and sum(mask) >= max_length for mask in encoded["attention_mask"]]


def tokenised(
    rows: Rows,
    tokenise: Any,
    columns: list[str],
    *,
    num_workers: int | None = None,
    overwrite_cache: bool = False,
) -> ArrowRows:
    """What `tokenise` makes of batches of `columns`; all other columns are left out.

    Args:
        tokenise: called with a batch as a dict of lists, with a method `key()` that names its settings.
        num_workers: processes to tokenise in. The tokenizers' own threads do nearly as well for less.
        overwrite_cache: compute it anew even if it is there.
    """
    key = key_of("tokenised", key_of_rows(rows, columns), tokenise.key())

    def batches() -> Iterator[Any]:
        texts = (chunk.to_pydict() for chunk in arrow_chunks(rows, columns, _BATCH))
        if num_workers is None or num_workers < 2:
            yield from map(_record_batch, map(tokenise, texts))
            return
        with multiprocessing.get_context().Pool(num_workers) as pool:
            yield from map(_record_batch, pool.imap(tokenise, texts))

    return stored(key, batches, overwrite_cache)


def _record_batch(columns: dict[str, list[Any]]) -> Any:
    """An Arrow record batch of masks, of whether a row was cut, and of lists of tokens or labels."""
    import pyarrow as pa

    arrays = {name: of_lists(values, np.int8 if name in _MASKS else np.int32) for name, values in columns.items()
              if name not in (LENGTH, TRUNCATED)}  # fmt: skip
    numbers = {name: of_numbers(columns[name], kind) for name, kind in ((LENGTH, np.int32), (TRUNCATED, np.int8))}
    return pa.record_batch({**arrays, **numbers})


def without_lengths(rows: ArrowRows, max_length: int | None) -> tuple[ArrowRows, Lengths]:
    """The model's inputs, and the lengths that were noted beside them."""
    lengths = Lengths(rows[LENGTH][:], sum(rows[TRUNCATED][:]), max_length)
    return rows.remove_columns([LENGTH, TRUNCATED]), lengths


def model_rows(
    table: Table | None, tokenise: Any, columns: Sequence[str], data: DataRequest
) -> tuple[Any, Lengths | None]:
    """The model's inputs for a table, and their lengths; nothing for no table. `tokenise` has a `max_length`."""
    if table is None:
        return None, None
    workers, anew = data.preprocessing_num_workers, data.overwrite_cache
    found = tokenised(table.rows, tokenise, list(columns), num_workers=workers, overwrite_cache=anew)
    return without_lengths(found, tokenise.max_length)


def identity_of(tokenizer: Any) -> str:
    """What a tokenizer does, as a key: vocabulary, rules and special tokens, but not the padding and truncation that
    its last call left behind."""
    core = getattr(tokenizer, "backend_tokenizer", None)
    if core is None:
        rules = repr(sorted(tokenizer.get_vocab().items()))
    else:
        # What a call leaves behind stands before the tokens. To parse it all takes longer than to tokenise 2,000 rows.
        _, mark, rules = core.to_str().partition('"added_tokens":')
        assert mark, "a tokenizer is written with its added tokens"
    sides = (tokenizer.padding_side, tokenizer.truncation_side, tuple(tokenizer.model_input_names))
    return key_of(
        type(tokenizer).__name__, rules, sorted(map(str, tokenizer.all_special_ids)), tokenizer.pad_token_id, sides
    )


def chosen_length(asked: int | None, limit: int | None, num_special: int = 0) -> int | None:
    """Tokens at which rows are cut: as asked, else the longest that the model takes.

    Args:
        num_special: tokens of each row that the tokenizer adds around the text.

    Raises:
        SettingError: more was asked for than the model has positions, or less than one token of text.
    """
    if asked is None:
        return limit
    if asked < 1:
        raise SettingError(f"max_seq_length={asked}: set it to 1 or more.")
    if asked <= num_special:
        raise SettingError(
            f"max_seq_length={asked} leaves no room for text: {num_special} tokens of each row are special ones. "
            f"Set it to {num_special + 1} or more."
        )
    if limit is not None and asked > limit:
        raise SettingError(f"max_seq_length={asked} is more than the model takes. Set it to {limit} or less.")
    return asked
