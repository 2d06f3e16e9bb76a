"""What can be read as a dataset at all."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

from torch.utils.data import DataLoader, Dataset

from burnish.core.errors import DataError

from .arrow_rows import is_of_datasets
from .batches import is_stream

TABLES = ("pandas", "polars")
"""Packages whose tables are read by column: `table[0]` is no row."""


def check_is_dataset(dataset: Any, name: str) -> None:
    """Refuses what has no rows to read. Raises `DataError`."""
    kind = type(dataset)
    package = kind.__module__.partition(".")[0]
    if package in TABLES:
        raise DataError(
            f"{name} is a {kind.__name__} of {package}, whose rows cannot be read by number. Pass "
            f"datasets.Dataset.from_{package}(…) of it."
        )
    if isinstance(dataset, DataLoader):
        raise DataError(
            f"{name} is a DataLoader, which gives batches, and burnish makes its own. Pass its dataset "
            f"({name}=loader.dataset) and its collate_fn as data_collator, or override the method that gives the "
            "loader, such as get_train_dataloader."
        )
    if isinstance(dataset, (str, bytes)) or not (
        callable(getattr(kind, "__iter__", None)) or hasattr(kind, "__getitem__")
    ):
        raise DataError(
            f"{name} is {dataset!r:.60}, which has no rows. Pass a list of dicts, a dataset of the package `datasets` "
            "or of torch, or a stream of rows."
        )
    if isinstance(dataset, (list, tuple)) and dataset and _is_of_rows(dataset[0]):
        raise DataError(
            f"{name} is a {kind.__name__} of datasets, not a dataset. Pass one of them; several evaluation datasets "
            'have names, as in eval_dataset={"first": …, "second": …}.'
        )
    if not is_stream(dataset) and not isinstance(dataset, Sized):
        raise DataError(
            f"{name}: {kind.__name__} has no length. Give it a `__len__`, or derive it from IterableDataset and set "
            "max_steps."
        )


def _is_of_rows(element: Any) -> bool:
    """Whether an element is a dataset itself: of a package, or a list of rows with names."""
    if isinstance(element, Dataset) or is_of_datasets(element, "Dataset", "IterableDataset"):
        return True
    return isinstance(element, (list, tuple)) and bool(element) and isinstance(element[0], Mapping)
