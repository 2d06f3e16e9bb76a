"""Which columns reach the model: those that `forward` names, and labels. The rest is left out, and said."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from burnish.core.errors import DataError

from .arrow_rows import ArrowRows, is_of_datasets

if TYPE_CHECKING:
    from burnish.models.contract import ModelFacts

logger = logging.getLogger(__name__)

LABELS = ("labels", "label", "label_ids")
"""Names under which every collator finds labels."""

MAIN_INPUTS = ("input_ids", "inputs_embeds", "pixel_values", "input_values", "input_features")
"""What models of transformers read, whichever further keywords they take."""

BESIDE_INPUTS = ("attention_mask", "token_type_ids", "position_ids", "head_mask", "decoder_attention_mask")
"""Columns that mean nothing without an input they belong to."""

_LABEL_WORDS = re.compile(
    r"(^|_)(labels?|sentiments?|targets?|class(es)?|category|categories|scores?|ratings?|stars?|intents?|tags?|"
    r"gold|truth|polarity|emotions?|grades?|y)(_|$)",
    re.IGNORECASE,
)
_NUMBERS_OF_ROWS = re.compile(r"(^|_)(id|ids|idx|index|num|length|len|level|token|offset|mask)(_|$)", re.IGNORECASE)


def kept_columns(
    dataset_columns: Iterable[str], accepts: frozenset[str], accepts_any: bool, label_names: tuple[str, ...]
) -> list[str]:
    """The columns that the model takes, in the order of the dataset; labels are always among them.

    A model that takes any keyword, and none of the columns by name but labels, takes them all; not one of
    transformers, whose keywords are switches.
    """
    columns = list(dataset_columns)
    labels = {*LABELS, *label_names}
    switches = not accepts.isdisjoint(MAIN_INPUTS)
    if accepts_any and not switches and not any(column in accepts and column not in labels for column in columns):
        return columns
    return [column for column in columns if column in accepts or column in labels]


def select_columns(
    dataset: Any,
    facts: ModelFacts,
    label_names: tuple[str, ...] | None = None,
    name: str = "train_dataset",
    expects_labels: bool = True,
) -> Any:
    """A dataset of the package `datasets` without the columns that the model does not take; others as they are.

    A dataset with a transform keeps its columns, since the transform reads them: `KeepColumns` prunes what it returns.

    Args:
        dataset: any dataset.
        facts: what the model takes.
        label_names: names of labels, where the user has set them; the model's own if None.
        name: how messages call the dataset.
        expects_labels: warn of a column that may be labels under another name. False where the collator makes labels.

    Raises:
        DataError: no input of the model would be left; the message lists both sides.
    """
    columns = _columns_to_prune(dataset)
    if columns is None:
        return dataset
    label_names = facts.label_names if label_names is None else label_names
    require_inputs(name, columns, facts, label_names)
    kept = kept_columns(columns, facts.accepts, facts.accepts_any, label_names)
    left_out = [column for column in columns if column not in kept]
    if left_out:
        logger.info(
            "%s: columns %s are left out; %s.forward does not take them.", name, ", ".join(left_out), facts.name
        )
    if expects_labels and label_names and not {*LABELS, *label_names} & set(kept):
        suspects = label_suspects({column: _example(dataset, column) for column in left_out})
        if suspects:
            logger.warning("%s has no labels. %s", name, rename_hint(suspects, label_names))
    return dataset.select_columns(kept) if left_out else dataset


def label_suspects(columns: Mapping[str, Any]) -> list[str]:
    """Of some columns, given with an example value each (None if not known), those that may be labels under another
    name: named like labels, or single numbers that do not count something."""
    named = [column for column in columns if _LABEL_WORDS.search(column)]
    if named:
        return named
    numbers = [column for column, value in columns.items() if isinstance(value, (bool, int, float))]
    return [column for column in numbers if not _NUMBERS_OF_ROWS.search(column)]


def rename_hint(suspects: Sequence[str], label_names: Sequence[str]) -> str:
    """What to do with columns that may be labels."""
    ours = label_names[0] if label_names else "labels"
    columns = " or ".join(f"`{column}`" for column in suspects)
    return (
        f"If {columns} holds the labels, rename it: dataset.rename_column({suspects[0]!r}, {ours!r}). If `forward` "
        f"takes it under that name, set TrainingArguments(label_names=[{suspects[0]!r}])."
    )


def require_inputs(name: str, columns: Sequence[str], facts: ModelFacts, label_names: Sequence[str]) -> None:
    """Refuses columns among which there is no input of the model.

    Raises:
        DataError: the message lists the columns and what the model takes.
    """
    labels = {*LABELS, *label_names}
    kept = kept_columns(columns, facts.accepts, facts.accepts_any, tuple(label_names))
    if any(column not in labels and column not in BESIDE_INPUTS for column in kept):
        return
    if kept and facts.accepts <= labels:
        return  # a module of the user's own that needs no input beside labels
    raise DataError(
        f"{name} has the columns {listed(columns)}, and {facts.name}.forward takes no input among them: it takes "
        f"{listed(sorted(facts.accepts))}. Tokenise the dataset, for example "
        "dataset.map(lambda row: tokenizer(row['text'], truncation=True)), or rename its columns. If a `data_collator` "
        "of your own makes the model's inputs, set remove_unused_columns=False."
    )


def listed(names: Iterable[Any]) -> str:
    return ", ".join(str(name) for name in names) or "(none)"


@dataclass
class KeepColumns:
    """Prunes rows that are mappings before they are collated. Rows of another kind pass as they are.

    Args:
        collator: what collates the pruned rows, given what else this is called with.
        columns: the columns to keep, where a row has them; labels are kept in any case.
        label_names: further names of labels. A row with no kept column but labels passes whole if `or_all`.
        or_all: whether the model takes any keyword.
    """

    collator: Callable[..., Any]
    columns: frozenset[str]
    label_names: tuple[str, ...] = ()
    or_all: bool = False

    @classmethod
    def of(
        cls, collator: Callable[..., Any], facts: ModelFacts, label_names: tuple[str, ...] | None = None
    ) -> KeepColumns:
        """Keeps what the model takes, and labels."""
        label_names = facts.label_names if label_names is None else label_names
        return cls(collator, facts.accepts, label_names, facts.accepts_any)

    def __call__(self, features: list[Any], *further: Any) -> Any:
        return self.collator([self._pruned(row) for row in features], *further)

    @cached_property
    def _always(self) -> frozenset[str]:
        """Columns that are kept whatever else a row has."""
        return self.columns.union(LABELS, self.label_names)

    def _pruned(self, row: Any) -> Any:
        if not isinstance(row, Mapping) or row.keys() <= self._always:
            return row
        kept = kept_columns(row, self.columns, self.or_all, self.label_names)
        return row if len(kept) == len(row) else {column: row[column] for column in kept}


def _columns_to_prune(dataset: Any) -> list[str] | None:
    """The columns of a table or a stream of `datasets` that are known and not read by a transform."""
    if isinstance(dataset, ArrowRows):
        return dataset.column_names
    if not is_of_datasets(dataset, "Dataset", "IterableDataset") or dataset.column_names is None:
        return None
    if is_of_datasets(dataset, "Dataset") and dataset.format["type"] == "custom":
        return None
    return list(dataset.column_names)


def _example(dataset: Any, column: str) -> Any:
    """The value of the first row, without reading a stream."""
    if isinstance(dataset, ArrowRows) and len(dataset):
        return dataset[column][0]
    if is_of_datasets(dataset, "Dataset") and len(dataset):
        return dataset.select_columns([column]).with_format(None)[0][column]
    return None
