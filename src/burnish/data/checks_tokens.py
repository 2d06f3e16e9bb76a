"""Checks of token ids, lengths and masks against what the model's tables hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from burnish.core.errors import DataError
from burnish.core.types import IGNORED_LABEL

from .blocks import Block
from .findings import Check, Found, faulty_sequences, faulty_values, missing_rows, of_column
from .table import Chunk

if TYPE_CHECKING:
    from burnish.models.contract import ModelFacts

TOKEN_COLUMNS = ("input_ids", "decoder_input_ids")
SEVERAL_A_ROW = ("ForMultipleChoice", "DoubleHeadsModel")
"""Endings of the names of models that read several sequences a row."""


def token_checks(name: str, facts: ModelFacts) -> list[Check]:
    """Checks of the inputs: whole, within the vocabulary, masks of the same length, within the positions."""
    checks = [_whole(name, column) for column in TOKEN_COLUMNS]
    if facts.vocab_size is not None:
        checks += [_are_ids(name, column) for column in TOKEN_COLUMNS]
        checks += [_within_vocabulary(name, column, facts.vocab_size) for column in TOKEN_COLUMNS]
    if facts.token_types is not None:
        checks += [_within_token_types(name, facts.token_types)]
    checks += [same_length(name, column, "input_ids") for column in ("attention_mask", "token_type_ids")]
    if facts.max_positions is not None:
        checks += [_within_positions(name, facts.max_positions)]
    if facts.max_target_positions is not None:
        checks += [_labels_within_positions(name, facts.max_target_positions)]
    return checks


def refuse_batch_of_one(name: str, row: Mapping[str, Any], facts: ModelFacts) -> None:
    """Refuses rows whose sequence is within another of length 1.

    Raises:
        DataError: for a model that reads one sequence a row.
    """
    shape: tuple[int, ...] = tuple(np.shape(row["input_ids"])) if _is_even(row.get("input_ids")) else ()
    if len(shape) == 2 and shape[0] == 1 and not facts.name.endswith(SEVERAL_A_ROW) and facts.vocab_size is not None:
        raise DataError(
            f"{name}: `input_ids` of a row has the shape {shape}, a sequence within another. A tokenizer that is "
            'called with return_tensors="pt" puts a batch around a single text: leave return_tensors out, or take [0] '
            "of each column."
        )


def _is_even(value: Any) -> bool:
    """Whether a value has a shape: an array, a tensor, or a list that holds a single sequence."""
    return hasattr(value, "shape") or (isinstance(value, (list, tuple)) and len(value) == 1)


def _whole(name: str, column: str) -> Check:
    return Check(
        of_column(column, missing_rows),
        lambda found: (
            f"{name}, {found.where}: `{column}` has no value (None). Remove the row, or tokenise it again.{found.more}"
        ),
    )


def _are_ids(name: str, column: str) -> Check:
    def find(block: Block) -> Found | None:
        if block.kind == "text":
            return faulty_values(block, np.array([isinstance(value, str) for value in block.values]))
        if block.kind == "float":
            broken = block.values != np.round(block.values)
            return faulty_values(block, broken if broken.any() else np.ones(len(broken), dtype=bool))
        return None

    def say(found: Found) -> str:
        if isinstance(found.value, str):
            return (
                f"{name}, {found.where}: `{column}` holds text ({found.value!r:.60}), and the model reads token ids. "
                f"Tokenise it: dataset.map(lambda row: tokenizer(row[{column!r}], truncation=True)).{found.more}"
            )
        return (
            f"{name}, {found.where}: `{column}` holds {found.value}, a float, and token ids are whole numbers. Read "
            f"the column as int, or tokenise again.{found.more}"
        )

    return Check(of_column(column, find), say)


def _within_token_types(name: str, token_types: int) -> Check:
    def find(block: Block) -> Found | None:
        return faulty_values(block, (block.values < 0) | (block.values >= token_types)) if block.kind == "int" else None

    return Check(
        of_column("token_type_ids", find),
        lambda found: (
            f"{name}, {found.where}: `token_type_ids` holds {found.value}, and the model knows the types 0 to "
            f"{token_types - 1} (type_vocab_size={token_types}). Tokenise with the model's own tokenizer, or remove "
            f"the column.{found.more}"
        ),
    )


def _within_vocabulary(name: str, column: str, vocab_size: int) -> Check:
    def find(block: Block) -> Found | None:
        if block.kind != "int":
            return None
        return faulty_values(block, (block.values < 0) | (block.values >= vocab_size))

    return Check(
        of_column(column, find),
        lambda found: (
            f"{name}, {found.where}: token id {found.value} in `{column}` is outside the model's vocabulary, which "
            f"holds ids 0 to {vocab_size - 1} (vocab_size={vocab_size}). Tokenise with the model's own tokenizer; if "
            f"tokens were added to it, call model.resize_token_embeddings(len(tokenizer)).{found.more}"
        ),
    )


def same_length(name: str, column: str, other: str) -> Check:
    """That two columns have one value a token each. Rows with single values in either are not looked at."""

    def find(chunk: Chunk) -> Found | None:
        one, two = chunk.get(column), chunk.get(other)
        if one is None or two is None or one.lengths is None or two.lengths is None:
            return None
        if not np.array_equal(one.owners, two.owners):
            return None  # nested in different ways: masks of shape (length, length), or several sequences a row
        found = faulty_sequences(one.owners, one.lengths, one.lengths != two.lengths)
        if found is not None:
            expected = two.lengths[np.flatnonzero(one.lengths != two.lengths)[0]]
            return Found(found.row, (found.value, int(expected)), found.num_rows)
        return None

    return Check(
        find,
        lambda found: (
            f"{name}, row {found.row}: `{column}` has {found.value[0]} values, but `{other}` has {found.value[1]}; "
            f"each token needs one. Make both in the same map() call, with the same truncation.{found.more}"
        ),
    )


def nothing_to_read(name: str, labels: str) -> Check:
    """Rows with a label and not one token: what the model says of them is an accident of the padding beside them."""

    def find(chunk: Chunk) -> Found | None:
        lengths, labelled = attended(chunk), chunk.get(labels)
        if lengths is None or labelled is None:
            return None
        rows = labelled.owners if labelled.lengths is None else labelled.owners[labelled.lengths > 0]
        owners = chunk["input_ids"].owners
        return faulty_sequences(owners, lengths, (lengths == 0) & np.isin(owners, rows))

    return Check(
        find,
        lambda found: (
            f"{name}, row {found.row} has a label and no token: its text is empty, or all of it is masked. Remove the "
            f"row, or fill in its text.{found.more}"
        ),
    )


def position_in_row(name: str, column: str) -> Check:
    """Positions of an answer that lie within their row: others carry no loss, as of answers that were cut away."""

    def find(chunk: Chunk) -> Found | None:
        lengths, positions = attended(chunk), chunk.get(column)
        if lengths is None or positions is None or positions.kind != "int":
            return None
        if not np.array_equal(chunk["input_ids"].owners, positions.owners):
            return None
        return faulty_values(positions, positions.values >= lengths)

    return Check(
        find,
        lambda found: (
            f"{name}, {found.where}: `{column}` is {found.value}, beyond the last token of its row. Such an answer "
            f"carries no loss; for one that is not in the text, use 0 (the first token).{found.more}"
        ),
    )


def attended(chunk: Chunk) -> NDArray[np.int64] | None:
    """Tokens of each sequence, (sequences,): those the mask attends to, or all where there is no mask."""
    ids, masks = chunk.get("input_ids"), chunk.get("attention_mask")
    if ids is None or ids.lengths is None:
        return None
    if masks is None or masks.lengths is None or not np.array_equal(masks.lengths, ids.lengths):
        return ids.lengths
    return _count(masks, masks.values != 0)


def _count(block: Block, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many values of each sequence are chosen."""
    assert block.lengths is not None
    before = np.concatenate([[0], np.cumsum(chosen)])
    count: NDArray[np.int64] = before[block.starts + block.lengths] - before[block.starts]
    return count


def _within_positions(name: str, max_positions: int) -> Check:
    def find(chunk: Chunk) -> Found | None:
        lengths = attended(chunk)
        if lengths is None or "position_ids" in chunk:  # rows with positions of their own may be packed
            return None
        return faulty_sequences(chunk["input_ids"].owners, lengths, lengths > max_positions)

    return Check(find, lambda found: _too_long(name, found, "tokens", max_positions))


def _labels_within_positions(name: str, max_positions: int) -> Check:
    def find(block: Block) -> Found | None:
        if block.kind != "int" or block.lengths is None:
            return None
        lengths = _count(block, block.values != IGNORED_LABEL)
        return faulty_sequences(block.owners, lengths, lengths > max_positions)

    return Check(of_column("labels", find), lambda found: _too_long(name, found, "labels", max_positions))


def _too_long(name: str, found: Found, what: str, limit: int) -> str:
    return (
        f"{name}, row {found.row} has {found.value} {what}, but the model's position embeddings hold {limit}. Shorten "
        f"the rows: tokenizer(…, truncation=True, max_length={limit}), or --max_seq_length {limit}.{found.more}"
    )


class EvenRows:
    """Finds rows whose length differs from that of the first row, for a collator that does not pad."""

    def __init__(self, name: str, column: str) -> None:
        self.name, self.column = name, column
        self.first: tuple[int, int] | None = None

    def check(self) -> Check:
        return Check(of_column(self.column, self._find), self._say)

    def _find(self, block: Block) -> Found | None:
        if block.lengths is None or not len(block.lengths):
            return None
        if self.first is None:
            self.first = int(block.owners[0]), int(block.lengths[0])
        return faulty_sequences(block.owners, block.lengths, block.lengths != self.first[1])

    def _say(self, found: Found) -> str:
        assert self.first is not None
        return (
            f"{self.name}: the rows of `{self.column}` have different lengths (row {self.first[0]}: {self.first[1]}, "
            f"row {found.row}: {found.value}), and the data_collator does not pad. Pass "
            "data_collator=DataCollatorWithPadding(tokenizer), or leave data_collator away and pass "
            'processing_class=tokenizer, or tokenise with padding="max_length".'
        )
