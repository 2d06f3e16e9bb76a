"""Texts to token ids, once: the result is kept under a key made of the texts, the tokenizer and the settings."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from burnish.core.errors import SettingError

from .cache import cache_folder, key_of, key_of_rows, quiet_datasets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import datasets

    from .files import Table
    from .recipe import DataRequest

LENGTH = "num_tokens"
TRUNCATED = "was_truncated"
_BAR_FROM_ROWS = 20_000


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
    rows: datasets.Dataset,
    tokenise: Any,
    columns: list[str],
    *,
    num_workers: int | None = None,
    overwrite_cache: bool = False,
) -> datasets.Dataset:
    """What `tokenise` makes of batches of `columns`; all other columns are left out.

    Args:
        tokenise: called with a batch as a dict of lists, with a method `key()` that names its settings.
        num_workers: processes to tokenise in. The tokenizers' own threads do nearly as well for less.
        overwrite_cache: compute it anew even if it is there.
    """
    rows = rows.select_columns(columns)
    return _mapped(
        rows, tokenise, key_of("tokenised", key_of_rows(rows, columns), tokenise.key()), num_workers, overwrite_cache
    )


def without_lengths(rows: datasets.Dataset, max_length: int | None) -> tuple[datasets.Dataset, Lengths]:
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
        import json

        content = json.loads(core.to_str())
        content.pop("padding", None)
        content.pop("truncation", None)
        rules = json.dumps(content, sort_keys=True)
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


def _mapped(
    rows: datasets.Dataset, function: Callable[..., Any], key: str, num_workers: int | None, overwrite: bool
) -> datasets.Dataset:
    """Runs `function` over batches of rows; the result is read from the cache where it is there."""
    try:
        cache_file: str | None = str(cache_folder() / f"tokens-{key}.arrow")
    except OSError:
        cache_file = None  # nowhere to write: keep it in memory
    with contextlib.nullcontext() if len(rows) >= _BAR_FROM_ROWS else quiet_datasets():
        return rows.map(
            function,
            batched=True,
            remove_columns=rows.column_names,
            num_proc=num_workers if num_workers and num_workers > 1 else None,
            load_from_cache_file=not overwrite,
            cache_file_name=cache_file,
            new_fingerprint=key,
            keep_in_memory=cache_file is None,
            desc="Tokenising",
        )
