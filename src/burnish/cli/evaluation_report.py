"""What `burnish evaluate` has found: as files, as tables, as JSON."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.tasks.recipe import TASK_KEY
from burnish.tracking.values import record

from .console import cut, print_table, say
from .results import print_results
from .rows import Row, write_rows

SAID = ("row", "loss", "label", "predicted", "token", "targets")
"""Columns of the worst rows that are shown, before the texts."""
NUM_SHOWN, MOST_CLASSES_SHOWN, LONGEST_CELL, SHORTEST_NAME, GAP = 5, 12, 18, 6, 4
RESULTS = "eval_results.json"
FILES = ("classes.csv", "confusion_matrix.csv", "calibration.csv", "entities.csv", "worst_rows.csv")
"""Tables that an evaluation may write; those of an earlier one are taken away."""


@dataclass
class Report:
    """An evaluation.

    Args:
        rows: of the file, in order.
        run: the parts that the recipe of the task made of them.
        texts_file: where generated texts were written.
    """

    task: str
    file: str
    rows: list[Row]
    run: Any
    texts_file: Path | None
    metrics: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, list[Row]] = field(default_factory=dict)
    """By the name of their file: classes, confusion_matrix, calibration, entities, worst_rows."""
    calibration_error: float | None = None

    def content(self) -> dict[str, Any]:
        """All of it as a dict."""
        found: dict[str, Any] = {"file": self.file, "rows": len(self.rows), "task": self.task, "metrics": self.metrics}
        if self.calibration_error is not None:
            found["expected_calibration_error"] = self.calibration_error
        return {**found, **self.tables}

    def as_json(self, written: list[Path]) -> dict[str, Any]:
        """Valid JSON: what is no number becomes null, and "nonfinite" says where."""
        return record({**self.content(), "files": list(map(str, written))})

    def row(self, number: int) -> Row:
        """The columns of a row of the file that can stand in a table; the text of a block of several rows."""
        if self.task == "causal-lm" and not self.run.has_prompts:
            ids = self.run.eval_dataset[number]["input_ids"]
            return {"text": self.run.processing_class.decode(ids, skip_special_tokens=True)}
        row = self.rows[number]
        return {**{name: row[name] for name in self.text_columns if name in row}, **row}

    @property
    def text_columns(self) -> list[str]:
        """Those that the model reads, and those that it is to write."""
        task = getattr(self.run.model.config, TASK_KEY, {})
        labels = task.get("label_columns") or [] if self.run.has_prompts else []
        return [*(task.get("text_columns") or ["text"]), *labels]


def of_classes(report: Report, found: Any, most_rows: int) -> None:
    """Takes down what the logits of a classifier of rows or of tokens show."""
    from burnish.evaluation.classifier_report import classifier_report

    names = [str(name) for _, name in sorted(report.run.model.config.id2label.items())]
    seen = classifier_report(_first(found.predictions), found.label_ids, names, most_rows)
    report.calibration_error = seen.calibration.error
    if report.task == "token-classification":
        _take_entities(report, found, names)
    report.tables |= {"classes": seen.classes, "calibration": seen.calibration.bins}
    if seen.confusion is not None:
        report.tables["confusion_matrix"] = [
            {"label": name, **dict(zip(names, row, strict=True))}
            for name, row in zip(names, seen.confusion.tolist(), strict=True)
        ]
    report.tables["worst_rows"] = [_beside(report, said) for said in seen.worst]


def of_numbers(report: Report, found: Any, most_rows: int) -> None:
    """Takes down the rows for which a regression is furthest from the truth."""
    from burnish.evaluation.row_losses import highest, squared_errors

    predictions = _first(found.predictions)
    losses = squared_errors(predictions, found.label_ids)
    flat, truth = predictions.reshape(len(losses), -1)[:, 0], found.label_ids.reshape(len(losses), -1)[:, 0]
    report.tables["worst_rows"] = [
        _beside(report, {"row": row, "loss": float(losses[row]), "label": float(truth[row]),
                         "predicted": float(flat[row])})
        for row in highest(losses, most_rows)
    ]  # fmt: skip


def of_tokens(report: Report, losses: Any, most_rows: int) -> None:
    """Takes down the rows of a language model with the highest mean loss; `losses` has (rows, 2): loss and targets."""
    from burnish.evaluation.row_losses import highest

    with_targets = [row for row in range(len(losses)) if losses[row, 1] > 0]
    worst = highest(losses[with_targets, 0], most_rows)
    report.tables["worst_rows"] = [
        _beside(report, {"row": row, "loss": float(losses[row, 0]), "targets": int(losses[row, 1])})
        for row in (with_targets[place] for place in worst)
    ]


def _take_entities(report: Report, found: Any, names: list[str]) -> None:
    from burnish.core.types import IGNORED_LABEL
    from burnish.evaluation.tagging import entity_table
    from burnish.tasks.metrics import are_bio

    if not are_bio(names):
        return
    predicted, labels = _first(found.predictions).argmax(-1), found.label_ids
    counted = labels != IGNORED_LABEL
    report.tables["entities"] = entity_table(
        ([names[number] for number in one[kept]], [names[number] for number in other[kept]])
        for one, other, kept in zip(predicted, labels, counted, strict=True)
    )


def _first(predictions: Any) -> Any:
    return predictions[0] if isinstance(predictions, tuple) else predictions


def _beside(report: Report, said: Row) -> Row:
    """What is said of a row, and the row's own columns after it. A position becomes the token that stands there."""
    if "position" in said:
        ids = report.run.eval_dataset[said["row"]]["input_ids"]
        said = {**said, "token": report.run.processing_class.decode([ids[said.pop("position")]]).strip()}
    own = report.row(said["row"])
    return {**said, **{name: value for name, value in own.items() if name not in said}}


def write_report(report: Report, folder: Path) -> list[Path]:
    """Writes the tables as CSV and all numbers as JSON. What an earlier evaluation left is replaced."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    written = []
    for name, rows in report.tables.items():
        if rows:
            written.append(folder / f"{name}.csv")
            write_rows(written[-1], rows)
    path = folder / RESULTS
    content = {name: value for name, value in report.content().items() if name != "worst_rows"}
    path.write_text(json.dumps(record(content), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return [path, *written, *([report.texts_file] if report.texts_file else [])]


def print_report(report: Report, folder: Path, written: list[Path]) -> None:
    """Tables for a person: the numbers, the classes, what is taken for what, the worst rows."""
    print_results(report.metrics)
    if "entities" in report.tables:
        _print("entities", report.tables["entities"])
    elif "classes" in report.tables:
        _print("classes", sorted(report.tables["classes"], key=lambda row: -row["rows"])[:MOST_CLASSES_SHOWN])
        _say_more(len(report.tables["classes"]), MOST_CLASSES_SHOWN, "classes")
    matrix = report.tables.get("confusion_matrix", [])
    name_length = (_terminal() - GAP - LONGEST_CELL) // max(1, len(matrix)) - GAP
    if matrix and name_length >= SHORTEST_NAME:
        title = "confusion matrix (a line for each label, a column for each prediction)"
        _print(title, matrix, {name: name_length for name in matrix[0] if name != "label"})
    if report.calibration_error is not None:
        say(f"\nExpected calibration error: {report.calibration_error:.4f}" + _in_words(report.tables["calibration"]))
    worst = report.tables.get("worst_rows", [])
    if worst:
        _print("rows of highest loss", [_preview(report, row) for row in worst[:NUM_SHOWN]])
        _say_more(len(worst), NUM_SHOWN, "in worst_rows.csv")
    say(f"\nWritten to {folder}:")
    names = ", ".join(str(path.relative_to(folder)) for path in written)
    say(textwrap.fill(names, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))


def _preview(report: Report, row: Row) -> Row:
    """What is said of a row, and its texts."""
    texts = [name for name in report.text_columns if name in row]
    texts = texts or [name for name in row if name == "text"]
    return {name: row[name] for name in [*(name for name in SAID if name in row), *texts]}


def _in_words(bins: list[Row]) -> str:
    """Whether a classifier is too sure of itself, or not sure enough."""
    total = sum(row["count"] for row in bins)
    if not total:
        return ""
    sure = sum(row["count"] * row["confidence"] for row in bins) / total
    right = sum(row["count"] * row["right"] for row in bins) / total
    return f" (mean confidence {100 * sure:.1f} %, right in {100 * right:.1f} %)"


def _say_more(number: int, shown: int, what: str) -> None:
    if number > shown:
        say(f"  … and {number - shown:,} more {what}")


def _print(title: str, rows: list[Row], lengths: Mapping[str, int] | None = None) -> None:
    """A table as wide as the terminal at the most: cells are cut, those of a last column of texts where the line ends.

    Args:
        lengths: of the names of columns, where they are not the usual ones.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    names = [_shown(name, (lengths or {}).get(name, LONGEST_CELL)) for name in columns]
    cells = [[_shown(row.get(name)) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    left = max(_terminal() - GAP * len(columns) - sum(widths[:-1]), LONGEST_CELL)
    for row, line in zip(rows, cells, strict=True):
        line[-1] = _shown(row.get(columns[-1]), left)
    say()
    print_table(title, names, cells)


def _terminal() -> int:
    return min(shutil.get_terminal_size((100, 24)).columns, 120)


def _shown(value: Any, length: int = LONGEST_CELL) -> str:
    """A cell of at most so many letters."""
    if isinstance(value, Mapping):
        value = json.dumps(value, ensure_ascii=False)
    text = f"{value:.4f}" if isinstance(value, float) else " ".join(str("" if value is None else value).split())
    return cut(text, length)
