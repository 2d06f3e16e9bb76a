"""Rows of an Arrow table read as those of `datasets` are, and mapped from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest

from burnish.data.arrow_rows import ArrowRows, arrow_chunks, is_of_datasets, write_file

CONTENT: dict[str, list[Any]] = {
    "ids": [[1, 2], [], [3], None, [4, 5, 6]],
    "text": ["a", "b", None, "d", "e"],
    "weights": [[0.5], [1.5, 2.5], [], [3.5], [4.5]],
    "switches": [[True], [False], [], [True], [True, False]],
    "number": [1, 2, 3, 4, 5],
}


@pytest.fixture(params=[1, 2, 100])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> ArrowRows:
    """The content in batches of some rows, from a file."""
    write_file(tmp_path / "rows.arrow", pa.table(CONTENT).to_batches(max_chunksize=request.param))
    return ArrowRows.from_file(tmp_path / "rows.arrow")


def test_reads_as_datasets_does(rows: ArrowRows) -> None:
    theirs = datasets.Dataset.from_dict(CONTENT)
    assert rows.to_list() == theirs.to_list()
    assert [rows[i] for i in range(5)] == [theirs[i] for i in range(5)]
    assert rows.__getitems__([4, 0, 4]) == theirs.__getitems__([4, 0, 4]) and rows[-1] == theirs[-1]
    for name, values in CONTENT.items():
        column = rows[name]
        assert (len(column), list(column), column[:], column[1:4], column[::-2]) == (
            *(5, values, values, values[1:4]),
            values[::-2],
        )
        assert column[2] == values[2]


def test_parts_are_those_of_datasets(rows: ArrowRows) -> None:
    theirs = datasets.Dataset.from_dict(CONTENT)
    for numbers in ([1, 2, 3], [4, 0], [2], []):
        assert rows.select(numbers).to_list() == theirs.select(numbers).to_list()
    assert [row["ids"] for row in map(rows.select([1, 2, 3, 4]).__getitem__, range(4))] == CONTENT["ids"][1:]
    kept = rows.remove_columns(["text", "weights"]).select_columns(["number", "ids"])
    assert kept.column_names == ["number", "ids"] and kept[0] == {"number": 1, "ids": [1, 2]}
    assert rows.add_column("more", pa.array(list("vwxyz"))).select([3])[0]["more"] == "y"


def test_a_row_that_is_not_there(rows: ArrowRows) -> None:
    for number in (5, -6):
        with pytest.raises(IndexError, match="among 5"):
            rows[number]


def test_chunks_are_of_one_size_whatever_the_batches(rows: ArrowRows) -> None:
    for table in (rows, datasets.Dataset.from_dict(CONTENT)):
        chunks = list(arrow_chunks(table, ["number"], 2))
        assert [chunk.to_pydict() for chunk in chunks] == [{"number": [1, 2]}, {"number": [3, 4]}, {"number": [5]}]


def test_what_fails_half_way_leaves_no_file(tmp_path: Path) -> None:
    def batches() -> Any:
        yield from pa.table({"number": [1]}).to_batches()
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        write_file(tmp_path / "rows.arrow", batches())
    assert not list(tmp_path.iterdir())


def test_classes_of_datasets_are_known_by_name() -> None:
    theirs = datasets.Dataset.from_dict({"a": [1]})
    assert is_of_datasets(theirs, "IterableDataset", "Dataset") and not is_of_datasets(theirs, "IterableDataset")
    assert not is_of_datasets([1], "Dataset")
