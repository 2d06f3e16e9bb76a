"""What kind of problem a label column states, and the numbers that its labels become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from burnish.core.errors import DataError

from .columns import is_number
from .label_lists import are_switches, check_names, check_switches
from .label_values import class_names, label_values, name_of, sorted_names

if TYPE_CHECKING:
    from .files import Table

REGRESSION = "regression"
SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
PROBLEM_TYPES = (REGRESSION, SINGLE_LABEL, MULTI_LABEL)
"""Kinds of problem, as a model's config names them."""

SEPARATORS = ("|", ";")
_MANY_NUMBERS = 100


@dataclass(frozen=True)
class LabelScheme:
    """What labels mean: how a value of the file becomes a target.

    A target is a class number (int), a row of zeros and ones (list of float, one per label), or a number (float).
    """

    problem_type: str
    columns: tuple[str, ...]
    names: tuple[str, ...]
    """Names of the classes in the order of their numbers; the column's name for a regression."""
    separator: str | None = None
    """Between the labels of a row, where they are one text."""
    switches: bool = False
    """Whether a row holds a list of zeros and ones, one a label."""
    order: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", {name: number for number, name in enumerate(self.names)})

    @property
    def kind(self) -> str:
        """In words, such as "binary classification"."""
        if self.problem_type == REGRESSION:
            return "regression"
        if self.problem_type == MULTI_LABEL:
            return f"multi-label classification, {len(self.names)} labels"
        return "binary classification" if len(self.names) == 2 else f"{len(self.names)}-class classification"

    def config_changes(self) -> dict[str, Any]:
        """What the model's config must say of these labels."""
        id2label = dict(enumerate(self.names))
        return {"id2label": id2label, "label2id": dict(self.order), "problem_type": self.problem_type}

    def targets(self, table: Table) -> list[Any]:
        """The targets of all rows.

        Raises:
            DataError: a missing label, one that is no number for a regression, or one that training does not know.
        """
        values = label_values(table, self.columns)
        if self.problem_type == REGRESSION:
            _check_numbers(table, self.columns, values)
            return [float(value) for value in values]
        if self.problem_type == SINGLE_LABEL:
            return [self._number(table, row, name_of(value)) for row, value in enumerate(values)]
        if self.switches:
            check_switches(table, self.columns[0], values, len(self.names))
            return [[float(part) for part in value] for value in values]
        return [self._switches(table, row, value) for row, value in enumerate(values)]

    def _number(self, table: Table, row: int, name: str) -> int:
        if name not in self.order:
            raise DataError(
                f"{table.place(row)}: the label {name!r} in column {', '.join(self.columns)!r} does not occur in the "
                f"training data. Known labels: {', '.join(map(repr, self.names[:20]))}"
                f"{', …' if len(self.names) > 20 else ''}."
            )
        return self.order[name]

    def _switches(self, table: Table, row: int, value: Any) -> list[float]:
        on = {self._number(table, row, name) for name in parts_of(value, self.separator, self.columns)}
        return [float(number in on) for number in range(len(self.names))]


def infer_scheme(
    table: Table, columns: Sequence[str], problem_type: str | None = None, known: Sequence[str] = ()
) -> LabelScheme:
    """Finds out what kind of problem a label column (or several) states.

    Several columns, lists, and texts in which "|" or ";" clearly separates labels are multi-label. Numbers with
    fractions, or of more than 100 different values, are a regression. All else are classes: whole numbers in their
    order, texts in alphabetical order.

    Args:
        problem_type: decides instead of the values.
        known: names of the classes in the order that a model has them already; kept if they are the same classes.

    Raises:
        DataError: a missing label, or labels that do not suit `problem_type`, or only one class.
    """
    if problem_type is not None and problem_type not in PROBLEM_TYPES:
        raise DataError(f"problem_type={problem_type!r} is unknown. Set one of {', '.join(PROBLEM_TYPES)}.")
    values = label_values(table, columns)
    separator = _separator(values) if problem_type in (None, MULTI_LABEL) else None
    several = len(columns) > 1 or separator is not None or isinstance(values[0], list)
    kind = problem_type or (MULTI_LABEL if several else REGRESSION if _is_measured(values) else SINGLE_LABEL)
    if several and kind != MULTI_LABEL:
        raise DataError(
            f"{table.source}: problem_type={kind!r} has one label a row, but {_listed(columns)} hold several."
        )
    if kind == REGRESSION:
        _check_numbers(table, columns, values)
        return LabelScheme(kind, tuple(columns), (columns[0],))
    given = class_names(table, columns[0]) if len(columns) == 1 else None
    switches = kind == MULTI_LABEL and len(columns) == 1 and are_switches(values)
    if switches:
        names = list(known) if len(known) == len(values[0]) else [str(number) for number in range(len(values[0]))]
    elif kind == MULTI_LABEL:
        names = _names_of_several(table, columns, values, separator, given)
    else:
        names = given or sorted_names({name_of(value) for value in values})
        _check_classes(table, columns[0], values, names)
    if len(names) < 2 and kind == SINGLE_LABEL:
        raise DataError(f"{table.source}: all rows have the label {names[0]!r} ({columns[0]!r}): nothing to learn.")
    if set(known) == set(names):
        names = list(known)
    return LabelScheme(kind, tuple(columns), tuple(names), separator, switches)


def _names_of_several(
    table: Table, columns: Sequence[str], values: list[Any], separator: str | None, given: list[str] | None
) -> list[str]:
    """The names of the labels of a multi-label problem: its columns, or what occurs in its one column."""
    if len(columns) > 1:
        return list(columns)
    check_names(table, columns[0], values)
    names = given or sorted_names({name for value in values for name in parts_of(value, separator, columns)})
    if not names:
        raise DataError(f"{table.source}: no row has a label: every list in column {columns[0]!r} is empty.")
    return names


def class_balance(scheme: LabelScheme, targets: Sequence[Any]) -> str:
    """How often each class occurs, for people: "negative 120 (40 %), positive 180 (60 %)"; the range of a number."""
    if scheme.problem_type == REGRESSION:
        return f"{min(targets):g} to {max(targets):g}, mean {sum(targets) / len(targets):.3g}"
    if scheme.problem_type == SINGLE_LABEL:
        counts = Counter(targets)
    else:
        counts = Counter({number: sum(int(row[number]) for row in targets) for number in range(len(scheme.names))})
    shown = [
        f"{scheme.names[number]} {count:,} ({100 * count / len(targets):.0f} %)"
        for number, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return ", ".join(shown[:10]) + (f", and {len(shown) - 10} more" if len(shown) > 10 else "")


def parts_of(value: Any, separator: str | None, columns: Sequence[str]) -> list[str]:
    """The names of the labels that a row of a multi-label problem has."""
    if len(columns) > 1:
        return [name for name, switch in zip(columns, value, strict=True) if switch]
    if isinstance(value, list):
        return [name_of(part) for part in value]
    text = name_of(value)
    return [part.strip() for part in text.split(separator)] if separator else [text]


def _is_measured(values: list[Any]) -> bool:
    """Whether labels are measurements: numbers with fractions, or of very many values."""
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return False
    return any(value != int(value) for value in values) or len(set(values)) > _MANY_NUMBERS


def _separator(values: list[Any]) -> str | None:
    """The mark between labels, if it is clear: taken apart, the texts give fewer names than they are themselves."""
    if not all(isinstance(value, str) for value in values):
        return None
    wholes = set(values)
    for mark in SEPARATORS:
        parts = {part.strip() for whole in wholes for part in whole.split(mark)}
        if "" not in parts and len(parts) < len(wholes) and any(mark in whole for whole in wholes):
            return mark
    return None


def _check_classes(table: Table, column: str, values: list[Any], names: list[str]) -> None:
    """Refuses a slip of the pen among numbers, and free text."""
    if all(isinstance(value, str) for value in values):
        odd = [row for row, value in enumerate(values) if not is_number(value)]
        fractions = any("." in value for value in values if is_number(value))
        if fractions and len(odd) * 2 < len(values):
            value = values[odd[0]]
            raise DataError(
                f"{table.place(odd[0])}: the label {value!r} in column {column!r} is no number, while most are."
            )
        if len(names) > max(_MANY_NUMBERS, len(values) // 2):
            raise DataError(
                f"{table.source}: column {column!r} has {len(names):,} different values in {len(values):,} rows. These "
                f"are no classes. Set --label_column to one of {_listed(table.rows.column_names)}."
            )


def _check_numbers(table: Table, columns: Sequence[str], values: list[Any]) -> None:
    if len(columns) > 1:
        raise DataError(f"A regression has one label column; --label_column names {len(columns)}.")
    for row, value in enumerate(values):
        if not isinstance(value, (int, float)):
            if isinstance(value, str) and is_number(value):
                continue
            raise DataError(f"{table.place(row)}: the label {value!r} in column {columns[0]!r} is no number.")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
