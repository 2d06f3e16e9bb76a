"""Preflight: what cannot train is refused before the first step, with the row, the value, and what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset

from burnish.core.errors import DataError

from .arrow_rows import is_of_datasets
from .checks_labels import SPANS, label_checks, range_checks
from .checks_tokens import EvenRows, nothing_to_read, position_in_row, refuse_batch_of_one, token_checks
from .columns import LABELS, label_suspects, listed, rename_hint, require_inputs
from .findings import Check, first_fault
from .table import as_names, chunks, column_names, first_row, is_at_hand

if TYPE_CHECKING:
    from burnish.models.contract import ModelFacts

logger = logging.getLogger(__name__)


def check_training_data(
    dataset: Any,
    name: str = "train_dataset",
    *,
    facts: ModelFacts,
    batch_size: int = 1,
    drop_last: bool = False,
    collator_pads: bool = True,
    collator_makes_labels: bool = False,
    labels_required: bool = True,
    label_names: tuple[str, ...] | None = None,
    rows_are_inputs: bool = True,
) -> None:
    """Refuses a dataset that cannot be trained on, or evaluated. Streams are not read.

    Tables and lists are looked at whole; of datasets that compute their rows, a spread sample.

    Args:
        dataset: map-style, iterable, or of the package `datasets`.
        name: how messages call the dataset.
        facts: what the model takes.
        batch_size: rows of a batch; with `drop_last`, fewer rows than that are no batch at all.
        drop_last: whether an incomplete batch is dropped.
        collator_pads: whether rows of different lengths can be collated.
        collator_makes_labels: whether labels are made of the tokens, so that the rows need none.
        labels_required: whether rows without labels are refused. False for prediction, and for a user's own loss.
        label_names: names of labels, where the user has set them; the model's own if None.
        rows_are_inputs: False where a collator of the user's own stands between rows and model. It may put right what
            looks wrong in the rows, so only what looks out of range is said, as a warning.

    Raises:
        DataError: with the first offending row, its value, the limit, how many more rows there are, and what to do.
    """
    if isinstance(dataset, Mapping):
        raise DataError(_is_a_dict(dataset, name))
    label_names = facts.label_names if label_names is None else label_names
    in_rows = _is_map_style(dataset)
    if in_rows:
        _check_size(len(dataset), name, batch_size, drop_last)
    columns = column_names(dataset)
    if columns is None:
        return
    labels = label_columns(columns, () if collator_makes_labels else label_names)
    if rows_are_inputs:
        wanted = label_names if labels_required and not collator_makes_labels else ()
        row = partial(first_row, dataset) if in_rows else dict[str, Any]
        refuse_columns(name, columns, facts, label_names, bool(labels) or not wanted, row)
        if is_at_hand(dataset) and "input_ids" in columns:  # of computed rows, each is looked at when it is read
            refuse_batch_of_one(name, row(), facts)
    if in_rows:
        checks = checks_of_values(name, facts, labels, rows_are_inputs, even=not collator_pads and batch_size > 1)
        _look(name, dataset, checks, labels, rows_are_inputs)


def refuse_columns(
    name: str,
    columns: Sequence[str],
    facts: ModelFacts,
    label_names: tuple[str, ...],
    has_labels: bool,
    row: Callable[[], Mapping[str, Any]],
) -> None:
    """Refuses rows in which an input or the labels are missing.

    Args:
        has_labels: whether there are labels, or need not be.
        row: gives a row, to look at what the columns hold.

    Raises:
        DataError: what is missing, and which column may hold it under another name.
    """
    require_inputs(name, columns, facts, label_names)
    if not has_labels and label_names:
        raise DataError(_no_labels(row(), name, columns, facts, label_names))
    spans = [column for column in SPANS if column in columns and column in label_names]
    if len(spans) == 1:
        other = next(column for column in SPANS if column not in spans)
        raise DataError(
            f"{name} has `{spans[0]}` and no `{other}`, and {facts.name} learns from both: add the column `{other}`, "
            "the position of a token in each row, counted from 0."
        )


def checks_of_values(
    name: str, facts: ModelFacts, labels: Sequence[str], rows_are_inputs: bool, even: bool = False
) -> list[Check]:
    """Checks of the values in rows that have these columns of labels."""
    of_labels = label_checks if rows_are_inputs else range_checks
    checks = [check for column in labels for check in of_labels(name, column, facts)]
    checks += token_checks(name, facts)
    checks += [nothing_to_read(name, column) for column in labels]
    if even and rows_are_inputs:
        checks += [EvenRows(name, column).check() for column in ("input_ids", *labels)]
    return checks


def columns_read(labels: Sequence[str]) -> list[str]:
    """Columns that checks look at."""
    return list(
        dict.fromkeys(
            ("input_ids", "attention_mask", "token_type_ids", "decoder_input_ids", "position_ids", "labels", *labels)
        )
    )


def _look(name: str, dataset: Any, checks: list[Check], labels: Sequence[str], rows_are_inputs: bool) -> None:
    fault = first_fault(checks, chunks(dataset, columns_read(labels)))
    beyond = [position_in_row(name, column) for column in labels if column in SPANS]
    remark = first_fault(beyond, chunks(dataset, columns_read(labels))) if beyond and fault is None else None
    if remark is not None:
        logger.warning(remark)
    if fault is None:
        return
    if rows_are_inputs:
        raise DataError(fault)
    logger.warning("%s (Unless the data_collator puts it right.)", fault)


def _is_a_dict(given: Mapping[str, Any], name: str) -> str:
    """What is wrong with a dict in place of a dataset: it holds datasets, or the columns of one."""
    first: Any = next(iter(given.values()), None)
    of_columns = hasattr(first, "__getitem__") and not isinstance(first, Mapping) and len(first) > 0
    if of_columns and as_names(first[0]) is None and not is_of_datasets(first, "Dataset"):
        return (
            f"{name} is a dict of columns ({listed(given)}), as a tokenizer returns it for many texts, not a list of "
            "rows: pass datasets.Dataset.from_dict(…) of it, with the labels as one more column."
        )
    key = next(iter(given), "train")
    return f"{name} is a dict of datasets ({listed(given)}), not a dataset: pass one of them, such as [{key!r}]."


def _is_map_style(dataset: Any) -> bool:
    return hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__") and not isinstance(dataset, IterableDataset)


def _check_size(num_rows: int, name: str, batch_size: int, drop_last: bool) -> None:
    if num_rows == 0:
        raise DataError(f"{name} is empty (0 rows). Check the file or the filter that it comes from.")
    if drop_last and num_rows < batch_size:
        raise DataError(
            f"{name} has {num_rows} rows, fewer than one batch of {batch_size}, and dataloader_drop_last=True drops "
            "incomplete batches, so nothing is left. Set dataloader_drop_last=False, or a smaller batch size."
        )


def label_columns(columns: Sequence[str], label_names: tuple[str, ...]) -> list[str]:
    """The columns that hold labels: under the model's names, or under one that collators turn into `labels`."""
    found = [column for column in label_names if column in columns]
    if "labels" in label_names and "labels" not in found:
        found += [column for column in LABELS if column in columns][:1]
    return found


def _no_labels(
    row: Mapping[str, Any], name: str, columns: Sequence[str], facts: ModelFacts, label_names: tuple[str, ...]
) -> str:
    left_out = [column for column in columns if column not in facts.accepts]
    suspects = label_suspects({column: row.get(column) for column in left_out})
    what_to_do = (
        rename_hint(suspects, label_names) if suspects else "Add a column of labels, or rename the one that holds them."
    )
    if facts.name.endswith(("ForCausalLM", "LMHeadModel", "ForMaskedLM")):
        what_to_do += " For language modelling, pass data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=…)."
    wanted = " and ".join(f"`{label}`" for label in label_names)
    return (
        f"{name} has no labels: {facts.name} learns from {wanted}, and the columns are {listed(columns)}. {what_to_do}"
    )
