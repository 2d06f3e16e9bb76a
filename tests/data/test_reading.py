"""A row that cannot be read is named, however it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tiny
from torch.utils.data import IterableDataset, Subset

from burnish.core.errors import DataError
from burnish.data.reading import row_of, rows_of
from burnish.data.streaming import numbered
from burnish.data.table import chunks, first_row

ROWS = tiny.class_rows(6)


class Broken:
    """Rows of which one cannot be read."""

    def __init__(self, bad: int, error: Exception) -> None:
        self.bad, self.error = bad, error

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, row: int) -> Any:
        if row == self.bad:
            raise self.error
        return ROWS[row]


class BrokenStream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from ROWS[:3]
        raise ConnectionError("reset")


@pytest.mark.parametrize("error", [ValueError("no image"), KeyError("no image"), OSError("no image")])
def test_the_row_is_named_with_what_the_dataset_said(error: Exception) -> None:
    dataset = Broken(4, error)
    said = rf"Row 4 of the dataset could not be read \({type(error).__name__}: .*no image"
    with pytest.raises(DataError, match=said) as caught:
        row_of(dataset, 4)
    assert caught.value.__cause__ is error
    with pytest.raises(DataError, match=said):
        rows_of(dataset, [2, 4, 5])
    with pytest.raises(DataError, match=said):
        list(chunks(dataset, ["labels"]))
    assert rows_of(dataset, [2, 3]) == ROWS[2:4]
    with pytest.raises(DataError, match=r"Row 0 "):
        first_row(Broken(0, error))


def test_of_rows_that_are_read_together_the_broken_one_is_named() -> None:
    subset: Any = Subset(Broken(4, ValueError("no image")), [5, 4, 3])  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"Row 1 of the dataset"):
        rows_of(subset, [0, 1, 2])
    assert rows_of(subset, [2, 0]) == [ROWS[3], ROWS[5]]


def test_a_stream_that_breaks_off_is_no_stream_that_ends() -> None:
    with pytest.raises(DataError, match=r"Row 3 of the dataset could not be read \(ConnectionError: reset\)"):
        list(numbered(BrokenStream(), seed=0, epoch=0))
