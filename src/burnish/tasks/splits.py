"""The training, validation and test rows that a request asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from burnish.core.errors import DataError
from burnish.core.randomness import ORDER, seed_for

from .files import Table, read_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .recipe import DataRequest


@dataclass(frozen=True)
class Splits:
    """The tables of a run; None where there are no rows of that kind."""

    train: Table | None = None
    validation: Table | None = None
    test: Table | None = None

    @property
    def first(self) -> Table:
        """The one that columns and labels are inferred from."""
        table = self.train or self.validation or self.test
        assert table is not None, "read_splits refuses a request without data"
        return table


def read_splits(request: DataRequest, read_txt: Any = None) -> Splits:
    """Reads the files of a request, and the first rows of each where it limits their number.

    Args:
        read_txt: how a `.txt` file is read, if not as one row a line.

    Raises:
        DataError: there is no file at all, or one cannot be read.
    """
    files = {
        "train": (request.train_file, request.max_train_samples),
        "validation": (request.validation_file, request.max_eval_samples),
        "test": (request.test_file, request.max_predict_samples),
    }
    if request.dataset_name is None and not any(file for file, _ in files.values()):
        raise DataError("There are no data. Set --train_file (CSV, TSV, JSON, JSONL, Parquet), or --dataset_name.")
    read = {}
    for split, (file, limit) in files.items():
        if file is not None:
            read[split] = _limited(Table(read_table(file, split, read_txt=read_txt), file), limit)
        elif request.dataset_name is not None and split in _splits_of(request):
            rows = read_table(request.dataset_name, split, config_name=request.dataset_config_name)
            read[split] = _limited(Table(rows, request.dataset_name), limit)
    return Splits(**read)


def held_out(num_rows: int, share: float, seed: int, classes: Sequence[Any] | None = None) -> list[int]:
    """Numbers of the rows to set aside for validation, in the order of the rows.

    A function of the arguments alone. With `classes` (one value a row) each class gives its share: rows are shuffled,
    sorted by class, and each 1/share-th is taken.

    Raises:
        DataError: the share leaves no row on one side.
    """
    import numpy as np

    if not 0 < share < 1 or not 0 < int(num_rows * share + 0.5) < num_rows:
        raise DataError(
            f"validation_split={share} of {num_rows} rows leaves none on one side. Set a share between 0 and 1."
        )
    order = np.random.default_rng(seed_for(seed, ORDER, num_rows)).permutation(num_rows).tolist()
    if classes is not None:
        order.sort(key=lambda row: classes[row])
    return sorted(row for place, row in enumerate(order) if int((place + 1) * share + 0.5) > int(place * share + 0.5))


def with_held_out(
    splits: Splits, data: DataRequest, classes: Sequence[Any] | None = None, from_end: bool = False
) -> tuple[Splits, list[tuple[str, str]]]:
    """Training rows set aside for validation, where that is asked for and there are no validation rows; and a note of
    it to show. With `from_end` the last rows, for those that go on from each other."""
    if splits.train is None or splits.validation is not None or not data.validation_split:
        return splits, []
    num_rows = len(splits.train.rows)
    aside = held_out(num_rows, data.validation_split, data.seed, classes)
    if from_end:
        aside = list(range(num_rows - len(aside), num_rows))
    kept = sorted(set(range(num_rows)) - set(aside))
    splits = replace(splits, train=selected(splits.train, kept), validation=selected(splits.train, aside))
    return splits, [("validation", f"{len(aside):,} of {num_rows:,} training rows set aside")]


def selected(table: Table, rows: list[int]) -> Table:
    return replace(table, rows=table.rows.select(rows))


def repeated_rows(train: Sequence[Any], validation: Sequence[Any]) -> int:
    """How many validation rows are in the training rows, too: those say nothing about new data."""
    seen = set(train)
    return sum(row in seen for row in validation)


def _limited(table: Table, limit: int | None) -> Table:
    if limit is None or limit >= len(table.rows):
        return table
    if limit < 1:
        raise DataError(f"{table.source}: {limit} rows were asked for. Set the number of samples to 1 or more.")
    return selected(table, list(range(limit)))


def _splits_of(request: DataRequest) -> list[str]:
    """The splits of a data set of the hub, or of a folder given by its name."""
    from pathlib import Path

    import datasets

    folder = Path(str(request.dataset_name))
    if folder.is_dir():
        found = datasets.load_from_disk(str(folder))
        return list(found) if isinstance(found, datasets.DatasetDict) else ["train"]
    try:
        return list(datasets.get_dataset_split_names(str(request.dataset_name), request.dataset_config_name))
    except Exception:  # the first read says what is wrong, in words
        return ["train"]
