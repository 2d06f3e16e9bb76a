"""`burnish predict`: asks a trained model about a file, about sentences, or about what comes in."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.core.errors import DataError, SettingError, did_you_mean

from .console import print_table, say
from .flags import Flag
from .help import help_text
from .parse import Given, parse
from .quiet import quiet
from .rows import Row, check_writable, columns_of, read_rows, write_rows
from .threads import load_torch
from .trained import check_model, trained_task

USAGE = """\
Asks a trained model about the rows of a file; writes them with the predictions and their probabilities.

Usage: burnish predict MODEL FILE [flags]             rows of a CSV, TSV, JSON, JSONL or Parquet file
       burnish predict MODEL --text "a sentence"      sentences; --text may be given again
       burnish predict MODEL -                        sentences from the standard input, one a line
"""
FLAGS = (
    Flag("output_file", "str", None, "Where to write: .csv, .tsv, .json, .jsonl or .parquet. Default for a file: "
         "predictions.csv; nothing is written for sentences.", "Flags", "run"),
    Flag("text", "str", None, "A sentence to ask about.", "Flags", "run"),
    Flag("text_column", "str", None, "Column of the text. Default: the one that the model was trained on.",
         "Flags", "run"),
    Flag("task", "str", None, "Task of a model that burnish did not train.", "Flags", "run"),
    Flag("max_predict_samples", "int", None, "Only this many rows.", "Flags", "run"),
    Flag("debug", "bool", False, "Show where in the code an error arose.", "Flags", "run", alone=True),
)  # fmt: skip
NUM_SHOWN, NUM_COLUMNS_SHOWN = 5, 3
SENTENCE = "text"
"""Column of a row that is one sentence."""
DEFAULT_OUTPUT = "predictions.csv"


@dataclass(frozen=True)
class Question:
    """What is asked."""

    model: Path
    rows: list[Row]
    source: str | None
    """The file that the rows come from; None for sentences."""
    text_column: str | None
    task: str | None


def command(words: Sequence[str]) -> int:
    """Runs `burnish predict` with the words that follow it."""
    if {"-h", "--help", "--help-all"} & set(words):
        say(help_text(USAGE, FLAGS))
        return 0
    given, sentences = _parsed(words)
    output = given.values.get("output_file")
    output_file = Path(output) if output else None
    if output_file:
        check_writable(output_file)
    question = _question(given, sentences)
    if output_file is None and question.source:
        output_file = Path(DEFAULT_OUTPUT)
    if output_file and question.source and output_file.resolve() == Path(question.source).resolve():
        raise SettingError(f"--output_file {output_file} is the file that is read. Name another.")
    load_torch()
    with quiet():
        answered = answer(question)
    if output_file:
        write_rows(output_file, answered)
    _show(answered, output_file, question)
    return 0


def predictions_for_file(model: str | Path, task: str, file: str, output_file: Path, max_rows: int | None) -> None:
    """Writes the rows of a file with the model's predictions."""
    rows = read_rows(file)[:max_rows]
    write_rows(output_file, answer(Question(Path(model), rows, file, None, task)))


def answer(question: Question) -> list[Row]:
    """The rows in their order, each with its prediction and the probabilities beside its own columns."""
    from burnish.tasks.registry import recipe, recipe_of

    asked = recipe(question.task) if question.task else recipe_of(question.model)
    predictor = asked.predictor(question.model)
    try:
        answers = predictor.predict(_as_trained(question))
    except DataError as error:
        said = str(error)
        named = question.source is None or said.startswith(str(question.source))
        raise DataError(said if named else f"{question.source}: {said}") from None
    return [_beside(row, flat(said)) for row, said in zip(question.rows, answers, strict=True)]


def flat(said: dict[str, Any]) -> dict[str, Any]:
    """An answer as columns: the prediction, then `probability_<class>` for each class."""
    columns = {name: value for name, value in said.items() if not isinstance(value, dict)}
    for name, value in said.get("probabilities", {}).items():
        columns[f"probability_{name}"] = value
    return columns


def _parsed(words: Sequence[str]) -> tuple[Given, list[str]]:
    """The flags, and the sentences, since `--text` may be given again."""
    flags = {flag.name: flag for flag in FLAGS}
    sentences, rest, pending = [], [], list(words)
    while pending:
        word = pending.pop(0)
        if word == "--text" and pending:
            sentences.append(pending.pop(0))
        elif word.startswith("--text="):
            sentences.append(word.removeprefix("--text="))
        else:
            rest.append(word)
    return parse(rest, flags), sentences


def _question(given: Given, sentences: list[str]) -> Question:
    if not given.words:
        raise SettingError("Which model? For example: burnish predict out data.csv")
    model, *files = given.words
    if len(files) > 1:
        raise SettingError(f"One file is read at a time, not {len(files)}: {' '.join(files)}.")
    if bool(files) == bool(sentences):
        raise SettingError('Give a file, or --text "a sentence", or - for the standard input.')
    check_model(Path(model))
    task, column = given.values.get("task"), given.values.get("text_column")
    if sentences or files == ["-"]:
        return Question(Path(model), [{SENTENCE: text} for text in sentences or _incoming()], None, None, task)
    most = given.values.get("max_predict_samples")
    if most is not None and most < 1:
        raise SettingError(f"--max_predict_samples {most}: set it to 1 or more.")
    rows = read_rows(files[0])[:most]
    return Question(Path(model), rows, files[0], column, task)


def _incoming() -> list[str]:
    lines = [line.strip() for line in sys.stdin if line.strip()]
    if not lines:
        raise DataError("Nothing came in on the standard input.")
    return lines


def _as_trained(question: Question) -> list[Row]:
    """The rows under the column names of the training data, where the text is in a column of another name."""
    if question.text_column is None and question.source is not None:
        return question.rows
    trained = _trained_columns(question.model)
    given = [name.strip() for name in question.text_column.split(",")] if question.text_column else [SENTENCE]
    if len(given) != len(trained):
        raise DataError(
            f"{question.model} reads {len(trained)} texts a row ({', '.join(trained)}), not {len(given)}. "
            "Give a file with these columns, or name yours with --text_column."
        )
    _check_columns(question, given)
    return [{new: row[old] for new, old in zip(trained, given, strict=True)} for row in question.rows]


def _check_columns(question: Question, given: list[str]) -> None:
    there = columns_of(question.rows)
    for name in given:
        if name not in there:
            raise DataError(
                f"{question.source}: there is no column {name!r} (--text_column).{did_you_mean(name, there)} "
                f"The columns are {', '.join(map(repr, there))}."
            )


def _trained_columns(folder: Path) -> list[str]:
    return trained_task(folder).get("text_columns") or [SENTENCE]


def _beside(row: Row, said: dict[str, Any]) -> Row:
    """The answer after the row's own columns; an answer whose name the row has gets "predicted_" before it."""
    return {**row, **{f"predicted_{name}" if name in row else name: value for name, value in said.items()}}


def _show(answered: list[Row], output_file: Path | None, question: Question) -> None:
    """All sentences, or the first rows of a file, and where the rest is."""
    own = set(columns_of(question.rows))
    shown = [_preview(row, own) for row in (answered if question.source is None else answered[:NUM_SHOWN])]
    columns = columns_of(shown)
    print_table("", columns, [[_shortened(row.get(name)) for name in columns] for row in shown])
    if len(answered) > len(shown):
        say(f"  … and {len(answered) - len(shown):,} more")
    if output_file:
        say(f"{len(answered):,} rows with their predictions: {output_file}")


def _preview(row: Row, own: set[str]) -> Row:
    """A row that fits on a line: of many probabilities the highest, of many columns the first."""
    likely = {name: value for name, value in row.items() if name not in own and name.startswith("probability_")}
    asked = [name for name in row if name in own][:NUM_COLUMNS_SHOWN]
    said = [name for name in row if name not in own and name not in likely]
    short = {name: row[name] for name in (*asked, *said)}
    return short | (likely if len(likely) <= NUM_COLUMNS_SHOWN else {"probability": max(likely.values())})


def _shortened(value: Any, length: int = 60) -> str:
    text = f"{value:.4f}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= length else text[: length - 1] + "…"
