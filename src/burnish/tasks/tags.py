"""The tags of words: which columns hold them, what they are called, and which rows cannot be used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from burnish.core.errors import DataError

from .columns import require_columns, told_columns
from .label_values import class_names, name_of, sorted_names
from .pretrained import load_config
from .recipe import DataRequest, ModelRequest
from .splits import Splits

if TYPE_CHECKING:
    from .files import Table

WORDS = ("tokens", "words")
TAGS = ("ner_tags", "tags", "labels", "pos_tags", "chunk_tags", "label")


@dataclass(frozen=True)
class TagScheme:
    """The tags of a data set, numbered."""

    words_column: str
    tags_column: str
    names: tuple[str, ...]

    def config_changes(self) -> dict[str, Any]:
        return {"id2label": dict(enumerate(self.names)), "label2id": {name: i for i, name in enumerate(self.names)}}


def infer_tags(splits: Splits, data: DataRequest, model: ModelRequest) -> TagScheme:
    """The columns, as told or by their usual names, and the tags of the training rows; without such, of the model.

    Raises:
        DataError: no column of lists looks like words or tags.
    """
    table = splits.first
    words = _column(table, data.text_column, WORDS, "--text_column", "words")
    tags = _column(table, data.label_column, TAGS, "--label_column", "tags")
    if splits.train is None:
        return TagScheme(words, tags, tuple(load_config(model).id2label.values()))
    named = class_names(table, tags)
    if named:
        return TagScheme(words, tags, tuple(named))
    found = {name_of(tag) for row in table.rows[tags][:] for tag in row or [] if tag is not None}
    return TagScheme(words, tags, tuple(sorted_names(found)))


def _column(table: Table, told: str | None, usual: Sequence[str], flag: str, what: str) -> str:
    if told:
        return told_columns(table, told, flag, at_most=1)[0]
    lists = [name for name in table.rows.column_names if isinstance(table.rows[0][name], list)]
    for name in usual:
        if name in lists:
            return name
    raise DataError(
        f"{table.source}: which column holds the {what}, as a list for each sentence? Columns of lists are "
        f"{', '.join(map(repr, lists)) or 'missing'}, all columns {', '.join(map(repr, table.rows.column_names))}. "
        f"Set {flag}."
    )


def check_tags(splits: Splits, scheme: TagScheme) -> None:
    """Raises a `DataError` for a row without words, with another number of tags than words, or with an unknown tag."""
    for table in (splits.train, splits.validation, splits.test):
        if table is None:
            continue
        require_columns(table, [scheme.words_column], "--text_column")
        if table is not splits.test:
            require_columns(table, [scheme.tags_column], "--label_column")
        tagged = scheme.tags_column in table.rows.column_names
        words = table.rows[scheme.words_column][:]
        tags = _tag_names(table, scheme) if tagged else words
        for row, (said, names) in enumerate(zip(words, tags, strict=True)):
            _check_row(table, row, said, names, scheme if tagged else None)


def _check_row(table: Table, row: int, words: Any, tags: Any, scheme: TagScheme | None) -> None:
    if not isinstance(words, list) or not words:
        raise DataError(f"{table.place(row)}: there are no words ({words!r}). Remove the row.")
    for place, word in enumerate(words, start=1):
        if not isinstance(word, str) or not word.strip():
            raise DataError(f"{table.place(row)}: word {place} is missing ({word!r}).")
    if scheme is None:
        return
    if not isinstance(tags, list) or len(tags) != len(words):
        found = f"{len(tags)} tags" if isinstance(tags, list) else f"{tags!r} instead of a list of tags"
        raise DataError(f"{table.place(row)}: {len(words)} words and {found}. Each word needs one tag.")
    for place, tag in enumerate(tags, start=1):
        if tag not in scheme.names:
            raise DataError(
                f"{table.place(row)}: the tag {tag!r} of word {place} ({words[place - 1]!r}) does not occur in the "
                f"training data. Known tags: {', '.join(scheme.names[:20])}."
            )


def _tag_names(table: Table, scheme: TagScheme) -> list[Any]:
    """The tags by name. A data set of the hub may number them."""
    named = class_names(table, scheme.tags_column)
    rows = table.rows[scheme.tags_column][:]
    return [[_name(tag, named) for tag in row] if isinstance(row, list) else row for row in rows]


def _name(tag: Any, named: list[str] | None) -> str:
    if named and isinstance(tag, int):
        return named[tag] if 0 <= tag < len(named) else str(tag)
    return name_of(tag)


def with_names(table: Table | None, scheme: TagScheme) -> Table | None:
    """The table with its tags by name instead of by number."""
    if table is None or not class_names(table, scheme.tags_column):
        return table
    import datasets

    names = _tag_names(table, scheme)
    rows: Any = table.rows.remove_columns(scheme.tags_column)
    feature = datasets.List(datasets.Value("string"))
    return type(table)(rows.add_column(scheme.tags_column, names, feature=feature), table.source)


def tag_balance(table: Table, scheme: TagScheme) -> str:
    """How often each tag occurs, for people."""
    counts = Counter(name for row in _tag_names(table, scheme) for name in row)
    shown = [f"{name} {count:,}" for name, count in counts.most_common()]
    return ", ".join(shown[:10]) + (f", and {len(shown) - 10} more" if len(shown) > 10 else "")
