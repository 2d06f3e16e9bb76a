"""Reads label columns, and refuses a row without a label."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from burnish.core.errors import DataError
from burnish.data.arrow_rows import ArrowRows

from .columns import is_number

if TYPE_CHECKING:
    from .files import Table

WITHHELD = -1
"""The class number by which data sets of the hub withhold a label."""

_MISSING = ("", "nan", "NaN", "null", "NULL", "N/A", "#N/A")
_WHOLE = re.compile("[+-]?[0-9]+")
_SWITCHES = {"0": False, "1": True, "false": False, "true": True}


def label_values(table: Table, columns: Sequence[str]) -> list[Any]:
    """The values of the label column: text, numbers, or lists of these; of several columns, lists of switches.

    Texts that are all numbers become numbers; classes that the data set itself names become their names.

    Raises:
        DataError: naming the first row without a label.
    """
    if len(columns) == 1:
        return _column_values(table, columns[0])
    read = [_switch_values(table, column) for column in columns]
    return [list(row) for row in zip(*read, strict=True)]


def has_labels(table: Table, columns: Sequence[str]) -> bool:
    """Whether a table for prediction has the label columns, with a label in some row."""
    if not set(columns) <= set(table.rows.column_names):
        return False
    hidden = [WITHHELD] if class_names(table, columns[0]) else []
    return all(any(not _is_missing(value) and value not in hidden for value in table.rows[name][:]) for name in columns)


def class_names(table: Table, column: str) -> list[str] | None:
    """The names that a data set of `datasets` has for the class numbers of a column, or of a column of lists."""
    if isinstance(table.rows, ArrowRows):
        return None
    feature = table.rows.features[column]
    feature = getattr(feature, "feature", feature)
    return list(feature.names) if hasattr(feature, "names") and hasattr(feature, "int2str") else None


def name_of(value: Any) -> str:
    """The name of a class: whole numbers without a fraction, so that 1.0, 1 and "1" are one class."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def sorted_names(names: set[str]) -> list[str]:
    """Whole numbers in their order, texts in alphabetical order; "07" and "7" are two names, in one order always."""
    return sorted(names, key=lambda name: (int(name), name)) if all(map(_WHOLE.fullmatch, names)) else sorted(names)


def _column_values(table: Table, column: str) -> list[Any]:
    values = table.rows[column][:]
    named = class_names(table, column)
    for row, value in enumerate(values):
        if _is_missing(value) or (named and value == WITHHELD):
            shown = "empty" if value == "" else repr(value)
            raise DataError(
                f"{table.place(row)}: the label in column {column!r} is missing ({shown}). "
                "Remove the row, or fill in its label."
            )
    _check_kinds(table, column, values)
    if named:
        return [_by_name(table, column, row, value, named) for row, value in enumerate(values)]
    if all(isinstance(value, str) for value in values):
        plain = [value.strip() for value in values]
        return [float(value) for value in plain] if all(map(is_number, plain)) else plain
    return values


def _check_kinds(table: Table, column: str, values: list[Any]) -> None:
    """A label is a text, a number or a truth value, or a list of these."""
    for row, value in enumerate(values):
        for part in value if isinstance(value, list) else (value,):
            if not isinstance(part, (str, int, float)):
                raise DataError(
                    f"{table.place(row)}: column {column!r} holds {str(value)[:60]}, which is no label. A label is a "
                    "text, a number, or a list of these."
                )


def _switch_values(table: Table, column: str) -> list[bool]:
    """One of several label columns: whether each row has the label."""
    read = []
    for row, value in enumerate(_column_values(table, column)):
        switch = _SWITCHES.get(name_of(value).lower())
        if switch is None:
            raise DataError(
                f"{table.place(row)}: column {column!r} holds {value!r}. "
                "Each of several label columns must hold 0 or 1."
            )
        read.append(switch)
    return read


def _is_missing(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, list):
        return any(_is_missing(part) for part in value)
    return value is None or (isinstance(value, str) and value.strip() in _MISSING)


def _by_name(table: Table, column: str, row: int, value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_by_name(table, column, row, part, names) for part in value]
    if not 0 <= value < len(names):
        raise DataError(f"{table.place(row)}: column {column!r} holds class {value}, but has names for {len(names)}.")
    return names[value]
