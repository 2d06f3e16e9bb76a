"""Reads JSON and JSONL, strictly: a line that is no object, and a column that changes its type, are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from burnish.core.errors import DataError

from .text_lines import open_text, shortened

Object = dict[str, Any]


def read_json(path: Path) -> dict[str, list[Any]]:
    """The columns of a JSON file: a list of objects, or an object that holds one under "data"; or JSONL all the same.

    Raises:
        DataError: malformed JSON (line and column), another form, or a column with values of different types.
    """
    with open_text(path) as text:
        content = text.read()
    if not content.strip():
        raise DataError(f"{path}: the file is empty.")
    try:
        found = json.loads(content)
    except json.JSONDecodeError as error:
        if content.lstrip().startswith("{") and error.msg == "Extra data":
            return read_jsonl(path)
        line = (content.splitlines() or [""])[min(error.lineno, len(content.splitlines())) - 1]
        raise DataError(
            f"{path}, line {error.lineno}, column {error.colno}: malformed JSON ({error.msg}): {shortened(line)}."
        ) from error
    rows = found.get("data", [found]) if isinstance(found, dict) else found
    if isinstance(found, dict) and rows == [found] and _are_columns(found):
        raise DataError(
            f"{path}: this holds columns ({', '.join(found)}), not rows. Write a list of rows, "
            f'[{{"{next(iter(found))}": …}}, …]; in pandas, df.to_json(path, orient="records").'
        )
    if not isinstance(rows, list):
        raise DataError(f'{path}: rows must be a list of objects, or {{"data": [...]}}; found {_kind(rows)}.')
    return _columns(path, [_object(path, f"row {number}", row) for number, row in enumerate(rows, start=1)])


def read_jsonl(path: Path) -> dict[str, list[Any]]:
    """The columns of a file with one object a line. Blank lines are passed over.

    Raises:
        DataError: naming the line: malformed JSON, something other than an object, a value of another type.
    """
    rows = []
    for line, content in _lines(path):
        where = f"line {line}"
        try:
            rows.append(_object(path, where, json.loads(content)))
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path}, {where}: malformed JSON ({error.msg}, column {error.colno}): {shortened(content)}."
            ) from error
        except RecursionError as error:
            raise DataError(f"{path}, {where}: nested too deeply: {shortened(content)}.") from error
    return _columns(path, rows)


def line_of_row(path: Path, row: int) -> int | None:
    """The line that holds data row `row`, counted from 0."""
    return next((line for number, (line, _) in enumerate(_lines(path)) if number == row), None)


def _are_columns(found: Object) -> bool:
    """Whether an object holds an object by row number under each of its names, as pandas writes by default."""
    return bool(found) and all(isinstance(value, dict) and "0" in value for value in found.values())


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with open_text(path) as text:
        for line, content in enumerate(text, start=1):
            if content.strip():
                yield line, content


def _object(path: Path, where: str, value: Any) -> Object:
    if isinstance(value, dict) and value:
        return value
    found = "an empty object" if value == {} else f"{_kind(value)}: {shortened(json.dumps(value, ensure_ascii=False))}"
    raise DataError(f'{path}, {where}: a row must be an object such as {{"text": …, "label": …}}; found {found}.')


def _columns(path: Path, rows: list[Object]) -> dict[str, list[Any]]:
    if not rows:
        raise DataError(f"{path}: the file has no rows.")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    for name, values in columns.items():
        _check_one_kind(path, name, values)
    return columns


def _check_one_kind(path: Path, name: str, values: list[Any]) -> None:
    """A column is text, or numbers, or …: a value of another kind is named, and so is the first of the usual kind."""
    first: tuple[int, str] | None = None
    for row, value in enumerate(values, start=1):
        if value is None:
            continue
        kind = _kind(value)
        if first is None:
            first = row, kind
        elif kind != first[1]:
            shown = shortened(json.dumps(value, ensure_ascii=False))
            raise DataError(
                f"{path}, row {row}: column {name!r} holds {kind} ({shown}), "
                f"but {first[1]} in row {first[0]}. Give all rows the same type."
            )


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    kinds = {str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return kinds.get(type(value), "nothing")
