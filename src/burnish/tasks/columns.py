"""Which columns hold the text and the label: as told, else by their usual names, else by their type."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from burnish.core.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from .files import Table

PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "passage"),
    ("question", "context"),
    ("question", "answer"),
    ("query", "document"),
    ("text1", "text2"),
    ("text_a", "text_b"),
)
"""Usual names of two texts that are judged together."""

TEXTS = (
    *("text", "sentence", "review", "review_text", "content", "comment", "comment_text", "tweet", "message", "body"),
    *("document", "utterance", "query", "question", "title"),
)
LABELS = (
    *("label", "labels", "target", "class", "category", "sentiment", "score", "rating", "stars", "intent", "topic"),
    *("emotion", "tag", "polarity", "y"),
)

_ROWS_LOOKED_AT = 1000
_LONGEST_NAME = 40
_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*|\d*\.\d+|\d+\.)([eE][+-]?\d+)?")


def text_columns(table: Table, told: str | None, label: Sequence[str] = (), flag: str = "--text_column") -> list[str]:
    """The column of the text, or the two of a pair.

    Args:
        told: one name, or two separated by a comma.
        label: columns that hold labels, and so no text.

    Raises:
        DataError: a name that does not exist, or several columns that could be meant.
    """
    if told:
        return told_columns(table, told, flag, at_most=2)
    names = [name for name in table.rows.column_names if name not in label]
    known = {name.lower(): name for name in names}
    for pair in PAIRS:
        if all(name in known for name in pair):
            return [known[name] for name in pair]
    for name in TEXTS:
        if name in known:
            return [known[name]]
    return [_longest_text(table, names, flag)]


def label_columns(table: Table, told: str | None, texts: Iterable[str] = ()) -> list[str]:
    """The column of the label, or those of several labels; empty where there is none that looks like one.

    Raises:
        DataError: a name that does not exist, or several columns that could be meant.
    """
    if told:
        return told_columns(table, told, "--label_column")
    names = [name for name in table.rows.column_names if name not in texts]
    known = {name.lower(): name for name in names}
    usual = [known[name] for name in LABELS if name in known]
    if usual:
        return usual[:1]
    rest = [name for name in names if name.lower() not in (*TEXTS, *(n for pair in PAIRS for n in pair))]
    rest = [name for name in rest if _might_be_label(_some_values(table, name))]
    if len(rest) > 1:
        raise DataError(
            f"{table.source}: which column holds the label? It could be {_listed(rest)}. Set --label_column."
            f"{header_hint(table)}"
        )
    if rest and rest[0] in _some_values(table, rest[0]):
        raise DataError(
            f"{table.source}: the column {rest[0]!r} is named like one of its own values, so the file seems to have "
            f"no line with names. Put one above the rows, or set --label_column {rest[0]}."
        )
    return rest


def require_columns(table: Table, names: Iterable[str], flag: str) -> None:
    """Raises a `DataError` for a column that does not exist."""
    exist = table.rows.column_names
    for name in names:
        if name not in exist:
            raise DataError(
                f"{table.source}: there is no column {name!r} ({flag}).{did_you_mean(name, exist)} "
                f"The columns are {_listed(exist)}."
            )


def told_columns(table: Table, told: str, flag: str, at_most: int | None = None) -> list[str]:
    """The columns that a flag names, separated by commas (a name that holds a comma itself is found, too)."""
    exist = table.rows.column_names
    names = [told] if told in exist else [name.strip() for name in told.split(",") if name.strip()]
    if not names:
        raise DataError(f"{flag} {told!r} names no column. The columns are {_listed(exist)}.")
    require_columns(table, names, flag)
    if at_most and len(names) > at_most:
        raise DataError(f"{flag} names {len(names)} columns ({_listed(names)}); at most {at_most} can be used.")
    return names


def texts_of(table: Table, column: str) -> list[str]:
    """The texts of a column; numbers become text.

    Raises:
        DataError: a row without text (empty, blank, null or NaN), or with a list or an object instead.
    """
    values = table.rows[column][:]
    for row, value in enumerate(values):
        if is_missing_text(value):
            raise DataError(
                f"{table.place(row)}: the text in column {column!r} is missing ({_shown(value)}). "
                "Remove the row, or fill in its text."
            )
        if isinstance(value, (list, dict)):
            raise DataError(
                f"{table.place(row)}: column {column!r} holds {type(value).__name__} {_shown(value)}, not a text. "
                f"Make it a text, or set --text_column; the columns are {_listed(table.rows.column_names)}."
            )
    return [value if isinstance(value, str) else str(value) for value in values]


def header_hint(table: Table) -> str:
    """A closing sentence for names of columns that look like values: the file has no header."""
    names = table.rows.column_names
    if any(is_number(name) or len(name) > _LONGEST_NAME for name in names):
        return " If the first line of the file is a row already, put a line with names above the rows."
    return ""


def is_missing_text(value: Any) -> bool:
    """Whether a value is no text: None, NaN, blank, or the word "nan", which is what a missing value becomes where a
    table is turned into text."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return isinstance(value, str) and value.strip() in ("", "nan", "NaN")


def is_number(text: str) -> bool:
    """Whether a text stands for a number; "007" and "1,5" do not."""
    return bool(_NUMBER.fullmatch(text))


def _longest_text(table: Table, names: list[str], flag: str) -> str:
    lengths = {name: _mean_length(_some_values(table, name)) for name in names}
    texts = sorted((name for name in names if lengths[name] > 0), key=lambda name: -lengths[name])
    if not texts:
        raise DataError(
            f"{table.source}: no column holds text. The columns are {_listed(table.rows.column_names)}."
            f"{header_hint(table)}"
        )
    if len(texts) > 1 and lengths[texts[1]] > lengths[texts[0]] / 2:
        raise DataError(
            f"{table.source}: which column holds the text? It could be {_listed(texts)}. "
            f"Set {flag} (two names with a comma for a pair of texts).{header_hint(table)}"
        )
    return texts[0]


def _some_values(table: Table, name: str) -> list[Any]:
    return table.rows[name][:_ROWS_LOOKED_AT]


def _mean_length(values: list[Any]) -> float:
    """Mean number of characters of a column of text; 0 for any other column."""
    given = [value for value in values if value not in (None, "")]
    if not given or not all(isinstance(value, str) for value in given) or all(map(is_number, given)):
        return 0
    return sum(map(len, given)) / len(given)


def _might_be_label(values: list[Any]) -> bool:
    """Numbers, or texts that come again: neither free text nor an identifier."""
    given = [str(value) for value in values if value not in (None, "")]
    if not given:
        return False
    distinct = len(set(given))
    if all(map(is_number, given)):
        return not _counts(given)
    return distinct < len(given) and distinct <= max(2, len(given) // 2) and max(map(len, given)) <= 60


def _counts(values: list[str]) -> bool:
    """Whether values run 0, 1, 2 …, as the number of a row does."""
    return len(values) > 2 and all(
        value == str(int(values[0]) + step) if values[0].isdigit() else False for step, value in enumerate(values)
    )


def _shown(value: Any) -> str:
    return "empty" if value == "" else repr(value)[:60]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
