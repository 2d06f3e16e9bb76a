"""The task "text-classification": a text or a pair of texts to one class, several labels, or a number."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from burnish.core.errors import DataError
from burnish.data.arrow_arrays import of_lists, of_numbers

from .columns import header_hint, label_columns, require_columns, text_columns, texts_of
from .label_values import has_labels, label_values, name_of
from .labels import MULTI_LABEL, REGRESSION, SINGLE_LABEL, LabelScheme, class_balance, infer_scheme
from .metrics import classification_metrics
from .pretrained import Pretrained, load_config, load_pretrained
from .recipe import TASK_KEY, DataRequest, ModelRequest, TaskRun
from .splits import Splits, read_splits, repeated_rows, with_held_out
from .tokenising import Lengths, TextTokeniser, model_rows

if TYPE_CHECKING:
    from .files import Table
    from .text_classifier import TextClassifier

BEST = {REGRESSION: "loss", SINGLE_LABEL: "accuracy", MULTI_LABEL: "f1"}
"""What tells the best checkpoint, by kind of problem."""


class TextClassification:
    """Sentence or pair classification and regression."""

    name = "text-classification"

    def prepare(self, data: DataRequest, model: ModelRequest) -> TaskRun:
        """Reads, checks, infers, loads and tokenises.

        Raises:
            DataError: naming file, row and value of what cannot be trained on.
            SettingError: the model cannot be loaded, or does not suit the settings.
        """
        splits = read_splits(data)
        texts, labels = _choose_columns(splits.first, data)
        scheme = _scheme(splits, labels, data, load_config(model))
        _check(splits, texts, scheme)
        splits, notes = _with_validation(splits, scheme, data, texts)
        task = {
            **{"task": self.name, "text_columns": texts, "label_columns": labels},
            **{"separator": scheme.separator, "switches": scheme.switches},
        }
        base = load_pretrained(model, data, "AutoModelForSequenceClassification", task, **scheme.config_changes())
        run = TaskRun(model=base.model, processing_class=base.tokenizer)
        run.notes = [*self._notes(texts, labels, scheme), *notes, *base.notes]
        _add_rows(run, splits, scheme, base, texts, data)
        run.data_collator = _padding_collator(base.tokenizer)
        run.compute_metrics = classification_metrics(scheme.problem_type, len(scheme.names))
        run.metric_for_best_model = BEST[scheme.problem_type]
        return run

    def predictor(self, folder: Path) -> TextClassifier:
        """Loads a folder that training has written."""
        from .text_classifier import TextClassifier

        return TextClassifier.load(folder)

    def _notes(self, texts: list[str], labels: list[str], scheme: LabelScheme) -> list[tuple[str, str]]:
        return [
            ("task", f"{self.name}: {scheme.kind}"),
            ("text column" if len(texts) == 1 else "text columns", ", ".join(texts)),
            ("label column" if len(labels) == 1 else "label columns", ", ".join(labels)),
        ]


def _choose_columns(table: Table, data: DataRequest) -> tuple[list[str], list[str]]:
    """The label is looked for among what is surely no text, and the text among what is no label."""
    if data.text_column:
        texts = text_columns(table, data.text_column)
        labels = label_columns(table, data.label_column, texts)
    else:
        labels = label_columns(table, data.label_column)
        texts = text_columns(table, None, labels)
    if not labels:
        raise DataError(
            f"{table.source}: no column looks like a label. The columns are "
            f"{', '.join(map(repr, table.rows.column_names))}. Set --label_column."
            f"{header_hint(table)}"
        )
    both = set(texts) & set(labels)
    if both:
        raise DataError(
            f"{table.source}: {min(both)!r} is both the text and the label. Set --text_column and --label_column."
        )
    return texts, labels


def _scheme(splits: Splits, labels: list[str], data: DataRequest, config: Any) -> LabelScheme:
    """From the training rows; without any, as the model was trained."""
    known = list(config.id2label.values()) if config.id2label else []
    if splits.train is not None:
        return infer_scheme(splits.train, labels, data.problem_type, known)
    kind = data.problem_type or config.problem_type or (REGRESSION if len(known) == 1 else SINGLE_LABEL)
    if kind == SINGLE_LABEL and not set(map(name_of, label_values(splits.first, labels))) & set(known):
        known = [name.removeprefix("LABEL_") for name in known]  # what transformers calls classes that have no name
    trained = getattr(config, TASK_KEY, {})
    return LabelScheme(kind, tuple(labels), tuple(known), trained.get("separator"), bool(trained.get("switches")))


def _check(splits: Splits, texts: list[str], scheme: LabelScheme) -> None:
    """Reads every text and label once, so that a bad row is named before anything is loaded."""
    for table in (splits.train, splits.validation, splits.test):
        if table is None:
            continue
        require_columns(table, texts, "--text_column")
        for column in texts:
            texts_of(table, column)
        if table is not splits.test:
            require_columns(table, scheme.columns, "--label_column")
            scheme.targets(table)


def _with_validation(
    splits: Splits, scheme: LabelScheme, data: DataRequest, texts: list[str]
) -> tuple[Splits, list[tuple[str, str]]]:
    """Sets training rows aside where that is asked for, and tells of validation rows that training sees, too."""
    if splits.train is not None and splits.validation is not None:
        return splits, _overlap(splits.train, splits.validation, texts)
    classes = None
    if splits.train is not None and scheme.problem_type == SINGLE_LABEL:
        classes = scheme.targets(splits.train)
    return with_held_out(splits, data, classes)


def _overlap(train: Table, validation: Table, texts: list[str]) -> list[tuple[str, str]]:
    seen, asked = (list(zip(*(table.rows[name][:] for name in texts), strict=True)) for table in (train, validation))
    repeated = repeated_rows(seen, asked)
    text = f"{repeated:,} of {len(asked):,} validation texts are training texts, too"
    return [("overlap", text)] if repeated else []


def _add_rows(
    run: TaskRun, splits: Splits, scheme: LabelScheme, base: Pretrained, texts: list[str], data: DataRequest
) -> None:
    """Tokenises each table and puts its targets beside the tokens."""
    tokenise = TextTokeniser(base.tokenizer, tuple(texts), base.max_length, data.pad_to_max_length)

    def labelled(table: Table | None) -> tuple[Any, Lengths | None]:
        rows, lengths = model_rows(table, tokenise, texts, data)
        return (_with_targets(rows, scheme, scheme.targets(table)) if table is not None else rows), lengths

    run.train_dataset, lengths = labelled(splits.train)
    run.eval_dataset, _ = labelled(splits.validation)
    if splits.test is not None and has_labels(splits.test, scheme.columns):
        run.predict_dataset, _ = labelled(splits.test)
    else:
        run.predict_dataset, _ = model_rows(splits.test, tokenise, texts, data)
    if splits.train is not None and lengths is not None:
        what = "values" if scheme.problem_type == REGRESSION else "classes"
        run.notes += [(what, class_balance(scheme, scheme.targets(splits.train))), *lengths.notes()]


def _with_targets(rows: Any, scheme: LabelScheme, targets: list[Any]) -> Any:
    if scheme.problem_type == MULTI_LABEL:
        return rows.add_column("labels", of_lists(targets, np.float32))
    number = np.int64 if scheme.problem_type == SINGLE_LABEL else np.float32
    return rows.add_column("labels", of_numbers(targets, number))


def _padding_collator(tokenizer: Any) -> Any:
    from burnish.data.collators import DataCollatorWithPadding

    return DataCollatorWithPadding(tokenizer)
