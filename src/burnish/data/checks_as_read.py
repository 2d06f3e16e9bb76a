"""Checks of rows as they are read, where nobody could look through them before: rows of streams, and computed ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from burnish.core.errors import DataError

from .checks import checks_of_values, columns_read, label_columns, refuse_columns
from .checks_tokens import refuse_batch_of_one
from .findings import first_fault
from .table import as_names, chunk_of

if TYPE_CHECKING:
    from burnish.models.contract import ModelFacts


@dataclass(frozen=True)
class RowChecks:
    """Refuses rows that cannot be computed, a batch at a time. Plain values, so that it goes to workers.

    Args:
        name: how messages call the dataset.
        facts: what the model takes.
        label_names: names of labels.
        makes_labels: whether the collator makes labels of the tokens.
        labels_required: whether rows without labels are refused.
    """

    name: str
    facts: ModelFacts
    label_names: tuple[str, ...]
    makes_labels: bool = False
    labels_required: bool = True

    def __call__(self, rows: Sequence[tuple[int, Any]]) -> None:
        """Raises a `DataError` that names the first row at fault, its value, and what to do."""
        taken = [(number, names) for number, row in rows if (names := as_names(row)) is not None]
        if not taken:
            return  # the collator says it
        columns = list(dict.fromkeys(column for _, row in taken for column in row))
        labels = label_columns(columns, () if self.makes_labels else self.label_names)
        has_labels = bool(labels) or self.makes_labels or not self.labels_required
        refuse_columns(self.name, columns, self.facts, self.label_names, has_labels, lambda: taken[0][1])
        for _, row in taken:
            refuse_batch_of_one(self.name, row, self.facts)
        checks = checks_of_values(self.name, self.facts, labels, rows_are_inputs=True)
        fault = first_fault(checks, [chunk_of(taken, columns_read(labels))])
        if fault is not None:
            raise DataError(fault)
