"""Label columns that hold a list a row: the names of a row's labels, or a switch for each label there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from burnish.core.errors import DataError

from .label_values import name_of

if TYPE_CHECKING:
    from .files import Table


def are_switches(values: list[Any]) -> bool:
    """Whether each row is a list of zeros and ones, one a label: [1, 0, 1] and not the names of its labels.

    Two classes named 0 and 1 could be written in lists as well; but lists of names that are all of one length of two or
    more, and hold nothing but 0 and 1, would give every row every label.
    """
    if not values or not all(isinstance(value, list) for value in values):
        return False
    widths = {len(value) for value in values}
    return len(widths) == 1 and min(widths) > 1 and all(part in (0, 1) for value in values for part in value)


def check_switches(table: Table, column: str, values: list[Any], width: int) -> None:
    """Raises a `DataError` for a row that is no list of `width` zeros and ones."""
    for row, value in enumerate(values):
        if not isinstance(value, list) or len(value) != width or any(part not in (0, 1) for part in value):
            raise DataError(
                f"{table.place(row)}: column {column!r} holds {value!r}, but the labels are lists of {width} zeros and "
                "ones, one for each label of the training data."
            )


def check_names(table: Table, column: str, values: list[Any]) -> None:
    """Raises a `DataError` for a list that cannot be the names of labels: with fractions, or the same name twice."""
    for row, value in enumerate(values):
        parts = value if isinstance(value, list) else [value]
        names = [name_of(part) for part in parts]
        twice = next((name for name in names if names.count(name) > 1), None)
        broken = next((part for part in parts if isinstance(part, float) and not part.is_integer()), None)
        what = f"the label {twice!r} twice" if twice is not None else f"the number {broken}"
        if twice is not None or broken is not None:
            raise DataError(
                f"{table.place(row)}: column {column!r} holds {what} ({value!r}). A list holds the names of the row's "
                "labels, each once; or, in every row, a 0 or 1 for each label there is."
            )
