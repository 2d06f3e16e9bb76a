"""Reads CSV and TSV, strictly: a row that does not fit is named, never mended in silence.

Every value stays the text that the file holds, so that a text such as "NA" or "007" is not taken for something else.
"""

from __future__ import annotations

import contextlib
import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from burnish.core.errors import DataError

from .text_lines import open_text, shortened

_QUOTED = re.compile('"(?:[^"]|"")*"')

Row = tuple[int, list[str]]
"""Line on which a row begins, counted from 1, and its fields."""


def read_csv(path: Path) -> dict[str, list[str]]:
    """The columns of a file whose first row names them. Blank lines are passed over.

    Raises:
        DataError: naming the row and its line: another number of fields than the header, a quote that is not closed,
            text after a closing quote; or a header with blank or repeated names; or no rows.
    """
    rows = _rows(path)
    line, names = next(rows, (0, []))
    if not line:
        raise DataError(f"{path}: the file is empty.")
    columns: list[list[str]] = [[] for _ in names]
    number = 0
    for number, (line, fields) in enumerate(rows, start=1):
        if len(fields) != len(names):
            raise DataError(_wrong_fields(path, number, line, fields, names))
        for column, field in zip(columns, fields, strict=True):
            column.append(field)
        if any("\0" in field for field in fields):
            raise DataError(_null_character(path, number, line, fields))
    if not number:
        raise DataError(f"{path}: the file has a header ({', '.join(names)}) and no rows.")
    return _named(path, names, columns)


def line_of_row(path: Path, row: int) -> int | None:
    """The line on which data row `row`, counted from 0, begins."""
    for number, (line, _) in enumerate(_rows(path)):
        if number == row + 1:
            return line
    return None


def _rows(path: Path) -> Iterator[Row]:
    """The rows of a file, its header first."""
    with open_text(path, newline="") as text:
        delimiter = _delimiter(path, text.readline())
    return _lines_as_rows(path) if delimiter == "\t" and _is_plain(path) else _quoted_rows(path, delimiter)


def _lines_as_rows(path: Path) -> Iterator[Row]:
    """Each line is a row, and a quote is a character like another, as is usual with tabs. A field that is quoted as a
    whole is taken out of its quotes."""
    with open_text(path) as text:
        for number, line in enumerate(text, start=1):
            if line.strip():
                fields = line.rstrip("\n").split("\t")
                yield number, [_unquoted(field) if _QUOTED.fullmatch(field) else field for field in fields]


def _is_plain(path: Path) -> bool:
    """Whether each line has as many tabs as the first: then no quoted field holds a tab or a line break."""
    with open_text(path) as text:
        return len({line.count("\t") for line in text if line.strip()}) <= 1


def _unquoted(field: str) -> str:
    return field[1:-1].replace('""', '"')


def _quoted_rows(path: Path, delimiter: str) -> Iterator[Row]:
    """Rows as the csv module reads them, in strict mode."""
    with open_text(path, newline="") as text, _long_fields():
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        begins = 1
        try:
            for fields in reader:
                if any(fields) or len(fields) > 1:
                    yield begins, fields
                begins = reader.line_num + 1
        except csv.Error as error:
            raise DataError(_broken_quote(path, begins, error)) from error


def _delimiter(path: Path, header: str) -> str:
    """A tab in `.tsv`; else the comma, unless the header has none of it and has a semicolon or a tab."""
    if ".tsv" in path.suffixes or ".tab" in path.suffixes:
        return "\t"
    return next((mark for mark in (",", ";", "\t") if mark in header), ",")


def _named(path: Path, names: list[str], columns: list[list[str]]) -> dict[str, list[str]]:
    names = [name.strip() for name in names]
    if names[0] == "" and _counts_rows(columns[0]) and len(names) > 1:
        names, columns = names[1:], columns[1:]  # the index that pandas writes by default
    blank = [number for number, name in enumerate(names, start=1) if not name]
    if blank:
        raise DataError(f"{path}, line 1: column {blank[0]} of the header has no name: {shortened(','.join(names))}.")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{path}, line 1: the header names {repeated[0]!r} {names.count(repeated[0])} times.")
    return dict(zip(names, columns, strict=True))


def _counts_rows(column: list[str]) -> bool:
    return column == [str(number) for number in range(len(column))]


def _wrong_fields(path: Path, number: int, line: int, fields: list[str], names: list[str]) -> str:
    advice = " A text that holds commas or line breaks must be in double quotes." if len(fields) > len(names) else ""
    return (
        f"{path}, row {number} (line {line}): {len(fields)} fields, but the header has {len(names)} "
        f"({', '.join(names)}): {shortened(', '.join(fields))}.{advice}"
    )


def _null_character(path: Path, number: int, line: int, fields: list[str]) -> str:
    return (
        f"{path}, row {number} (line {line}): a null character, which no text has: {shortened(', '.join(fields))}. "
        "The file is damaged, or not UTF-8 (UTF-16 without a mark at its start, for example)."
    )


def _broken_quote(path: Path, line: int, error: csv.Error) -> str:
    with open_text(path) as text:
        said = next((content for number, content in enumerate(text, start=1) if number == line), "")
    if "unexpected end" in str(error):
        what = "a double quote is opened and never closed"
    elif "expected after" in str(error):
        what = 'text follows a closing double quote (a quote inside a quoted text is written twice: "")'
    else:
        what = str(error)
    return f"{path}, the row that begins on line {line}: {what}: {shortened(said)}."


@contextlib.contextmanager
def _long_fields() -> Iterator[None]:
    """Takes fields of any length while reading; the module's own limit is 131,072 characters."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)
