"""The task "seq2seq": a source text to a target text, as in translation and summarization."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.core.errors import DataError

from .cache import key_of
from .columns import require_columns, text_columns, texts_of
from .pretrained import load_pretrained
from .recipe import DataRequest, ModelRequest, TaskRun
from .splits import Splits, read_splits, with_held_out
from .tokenising import LENGTH, TRUNCATED, identity_of, model_rows, were_truncated

if TYPE_CHECKING:
    from .files import Table
    from .text_writer import TextWriter

PAIRS = (
    ("source", "target"),
    ("input", "output"),
    ("input", "target"),
    ("article", "highlights"),
    ("article", "summary"),
    ("document", "summary"),
    ("dialogue", "summary"),
    ("text", "summary"),
    ("question", "answer"),
    ("prompt", "completion"),
)
"""Usual names of a source and its target."""


@dataclass(frozen=True)
class SourceTargetTokeniser:
    """Tokenises sources, and targets as labels; both are cut at the same length."""

    tokenizer: Any
    source: str
    target: str | None
    max_length: int | None = None

    def key(self) -> str:
        return key_of(identity_of(self.tokenizer), self.source, self.target, self.max_length, "source, target")

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        encoded = self._encoded(text=batch[self.source])
        found = {name: encoded[name] for name in ("input_ids", "attention_mask")}
        found[LENGTH] = list(map(len, encoded["input_ids"]))
        found[TRUNCATED] = were_truncated(encoded, self.max_length)
        if self.target is not None:
            targets = self._encoded(text_target=batch[self.target])
            found["labels"] = targets["input_ids"]
            cut = were_truncated(targets, self.max_length)
            found[TRUNCATED] = [one or other for one, other in zip(found[TRUNCATED], cut, strict=True)]
        return found

    def _encoded(self, **texts: list[Any]) -> Any:
        as_texts = {name: list(map(str, values)) for name, values in texts.items()}
        return self.tokenizer(**as_texts, truncation=self.max_length is not None, max_length=self.max_length)


class Seq2Seq:
    """A source text to a target text."""

    name = "seq2seq"

    def prepare(self, data: DataRequest, model: ModelRequest) -> TaskRun:
        """Reads, checks, infers, loads and tokenises.

        Raises:
            DataError: naming file, row and value of what cannot be trained on.
            SettingError: the model cannot be loaded, or does not suit the settings.
        """
        splits = read_splits(data)
        source, target = _columns(splits.first, data)
        _check(splits, source, target)
        splits, notes = with_held_out(splits, data)
        task = {"task": self.name, "text_columns": [source], "label_columns": [target]}
        base = load_pretrained(model, data, "AutoModelForSeq2SeqLM", task)
        run = TaskRun(model=base.model, processing_class=base.tokenizer)
        run.notes = [("task", self.name), ("source column", source), ("target column", target), *notes, *base.notes]
        tokenise = SourceTargetTokeniser(base.tokenizer, source, target, base.max_length)
        run.train_dataset, lengths = model_rows(splits.train, tokenise, [source, target], data)
        run.eval_dataset, _ = model_rows(splits.validation, tokenise, [source, target], data)
        if splits.test is not None and target not in splits.test.rows.column_names:
            plain = SourceTargetTokeniser(base.tokenizer, source, None, base.max_length)
            run.predict_dataset, _ = model_rows(splits.test, plain, [source], data)
        else:
            run.predict_dataset, _ = model_rows(splits.test, tokenise, [source, target], data)
        run.notes += lengths.notes() if lengths else []
        run.data_collator = _collator(base.tokenizer, base.model)
        run.metric_for_best_model, run.has_prompts = "loss", True
        return run

    def predictor(self, folder: Path) -> TextWriter:
        """Loads a folder that training has written."""
        from .text_writer import TextWriter

        return TextWriter.load(folder, "AutoModelForSeq2SeqLM")


def _columns(table: Table, data: DataRequest) -> tuple[str, str]:
    names = table.rows.column_names
    if not data.text_column and not data.label_column:
        known = {name.lower(): name for name in names}
        for source, target in PAIRS:
            if source in known and target in known:
                return known[source], known[target]
        if len(names) == 2:
            return names[0], names[1]
    if data.text_column and data.label_column:
        told = text_columns(table, data.text_column), text_columns(table, data.label_column, flag="--label_column")
        if len(told[0]) == len(told[1]) == 1:
            return told[0][0], told[1][0]
    raise DataError(
        f"{table.source}: which columns are source and target? The columns are {', '.join(map(repr, names))}. "
        "Set --text_column to the source and --label_column to the target."
    )


def _check(splits: Splits, source: str, target: str) -> None:
    for table in (splits.train, splits.validation, splits.test):
        if table is None:
            continue
        require_columns(table, [source], "--text_column")
        texts_of(table, source)
        if table is not splits.test or target in table.rows.column_names:
            require_columns(table, [target], "--label_column")
            texts_of(table, target)


def _collator(tokenizer: Any, model: Any) -> Any:
    from burnish.data.collators import DataCollatorForSeq2Seq

    return DataCollatorForSeq2Seq(tokenizer, model=model)
