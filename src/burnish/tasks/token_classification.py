"""The task "token-classification": a tag for each word (named entities, parts of speech)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.core.errors import DataError, SettingError

from .columns import require_columns, told_columns
from .entities import are_bio, tagging_metrics
from .label_values import class_names, name_of, sorted_names
from .metrics import IGNORED_LABEL
from .pretrained import load_config, load_pretrained
from .recipe import DataRequest, ModelRequest, TaskRun
from .splits import Splits, read_splits, with_held_out
from .tagged_words import read_conll
from .tokenising import LENGTH, TRUNCATED, identity_of, key_of, model_rows, were_truncated

if TYPE_CHECKING:
    from .files import Table
    from .word_tagger import WordTagger

WORDS = ("tokens", "words")
TAGS = ("ner_tags", "tags", "labels", "pos_tags", "chunk_tags", "label")
NEED_PREFIX_SPACE = ("bloom", "gpt2", "roberta", "deberta", "xlm-roberta-xl", "longformer", "bart", "modernbert")
"""Models whose tokenizers tell a word from a piece of one by the space before it."""


@dataclass(frozen=True)
class TagScheme:
    """The tags of a data set, numbered."""

    words_column: str
    tags_column: str
    names: tuple[str, ...]

    def config_changes(self) -> dict[str, Any]:
        return {"id2label": dict(enumerate(self.names)), "label2id": {name: i for i, name in enumerate(self.names)}}


@dataclass(frozen=True)
class TagTokeniser:
    """Tokenises batches of words; the tag of a word goes to its first token, the rest carry no loss."""

    tokenizer: Any
    scheme: TagScheme
    max_length: int | None
    with_tags: bool = True

    def key(self) -> str:
        return key_of(identity_of(self.tokenizer), self.scheme, self.max_length, self.with_tags, "first token")

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        cut = self.max_length is not None
        words = [list(map(str, row)) for row in batch[self.scheme.words_column]]
        encoded = self.tokenizer(words, is_split_into_words=True, truncation=cut, max_length=self.max_length)
        found = {**encoded, LENGTH: [len(ids) for ids in encoded["input_ids"]]}
        found[TRUNCATED] = were_truncated(encoded, self.max_length)
        if self.with_tags:
            numbers = self.scheme.config_changes()["label2id"]
            tags = batch[self.scheme.tags_column]
            found["labels"] = [
                first_token_labels(encoded.word_ids(row), [numbers[name_of(tag)] for tag in tags[row]])
                for row in range(len(tags))
            ]
        return found


def first_token_labels(word_ids: Sequence[int | None], labels: Sequence[int]) -> list[int]:
    """One label a token: that of the word at its first token, -100 at its other tokens and at special tokens."""
    return [
        IGNORED_LABEL if word is None or (place and word_ids[place - 1] == word) else labels[word]
        for place, word in enumerate(word_ids)
    ]


class TokenClassification:
    """A tag for each word."""

    name = "token-classification"

    def prepare(self, data: DataRequest, model: ModelRequest) -> TaskRun:
        """Reads, checks, infers, loads and tokenises.

        Raises:
            DataError: naming file, row and value of what cannot be trained on.
            SettingError: the model cannot be loaded, or has no fast tokenizer.
        """
        splits = read_splits(data, read_txt=read_conll)
        scheme = _scheme(splits, data, model)
        _check(splits, scheme)
        splits, notes = with_held_out(splits, data)
        task = {"task": self.name, "text_columns": [scheme.words_column], "label_columns": [scheme.tags_column]}
        base = load_pretrained(model, data, "AutoModelForTokenClassification", task,
                               tokenizer_settings=_word_settings(model), **scheme.config_changes())  # fmt: skip
        if not base.tokenizer.is_fast:
            raise SettingError("Words are aligned with tokens by a fast tokenizer, and this model has none.")
        run = TaskRun(model=base.model, processing_class=base.tokenizer)
        kind = f"{len(scheme.names)} tags" + (", which mark entities (BIO)" if are_bio(scheme.names) else "")
        run.notes = [("task", f"{self.name}: {kind}"), ("words column", scheme.words_column),
                     ("tags column", scheme.tags_column), *notes, *base.notes]  # fmt: skip
        self._add_rows(run, splits, TagTokeniser(base.tokenizer, scheme, base.max_length), data)
        run.data_collator = _collator(base.tokenizer)
        run.compute_metrics = tagging_metrics(scheme.names)
        run.metric_for_best_model = "f1" if are_bio(scheme.names) else "accuracy"
        return run

    def predictor(self, folder: Path) -> WordTagger:
        """Loads a folder that training has written."""
        from .word_tagger import WordTagger

        return WordTagger.load(folder)

    def _add_rows(self, run: TaskRun, splits: Splits, tokenise: TagTokeniser, data: DataRequest) -> None:
        scheme = tokenise.scheme
        columns = [scheme.words_column, scheme.tags_column]
        run.train_dataset, lengths = model_rows(_named(splits.train, scheme), tokenise, columns, data)
        run.eval_dataset, _ = model_rows(_named(splits.validation, scheme), tokenise, columns, data)
        if splits.test is not None and scheme.tags_column in splits.test.rows.column_names:
            run.predict_dataset, _ = model_rows(_named(splits.test, scheme), tokenise, columns, data)
        else:
            plain = TagTokeniser(tokenise.tokenizer, scheme, tokenise.max_length, with_tags=False)
            run.predict_dataset, _ = model_rows(splits.test, plain, columns[:1], data)
        if splits.train is not None and lengths is not None:
            run.notes += [("tags", _balance(splits.train, scheme)), *lengths.notes()]


def _scheme(splits: Splits, data: DataRequest, model: ModelRequest) -> TagScheme:
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


def _check(splits: Splits, scheme: TagScheme) -> None:
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


def _named(table: Table | None, scheme: TagScheme) -> Table | None:
    """The table with its tags by name instead of by number."""
    if table is None or not class_names(table, scheme.tags_column):
        return table
    import datasets

    names = _tag_names(table, scheme)
    rows = table.rows.remove_columns(scheme.tags_column)
    feature = datasets.List(datasets.Value("string"))
    return type(table)(rows.add_column(scheme.tags_column, names, feature=feature), table.source)


def _balance(table: Table, scheme: TagScheme) -> str:
    counts = Counter(name for row in _tag_names(table, scheme) for name in row)
    shown = [f"{name} {count:,}" for name, count in counts.most_common()]
    return ", ".join(shown[:10]) + (f", and {len(shown) - 10} more" if len(shown) > 10 else "")


def _word_settings(model: ModelRequest) -> dict[str, Any]:
    kind = getattr(load_config(model), "model_type", "")
    return {"add_prefix_space": True} if kind in NEED_PREFIX_SPACE else {}


def _collator(tokenizer: Any) -> Any:
    from burnish.data.collators import DataCollatorForTokenClassification

    return DataCollatorForTokenClassification(tokenizer)
