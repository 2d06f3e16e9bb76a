"""Arrow arrays made of Python values, as pyarrow would; and without pandas."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from burnish.data.arrow_arrays import as_numpy, of_lists, of_numbers, of_texts


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.float32])
def test_numbers_and_lists_of_them(dtype: Any) -> None:
    for row in ([1, 2, 3], []):
        assert of_numbers(row, dtype).equals(pa.array(row, pa.from_numpy_dtype(dtype)))
    rows = [[1, 2], [], [3]]
    assert of_lists(rows, dtype).equals(pa.array(rows, pa.list_(pa.from_numpy_dtype(dtype))))
    assert of_lists([[], []], dtype).equals(pa.array([[], []], pa.list_(pa.from_numpy_dtype(dtype))))


def test_a_number_that_does_not_fit() -> None:
    with pytest.raises(OverflowError):
        of_numbers([300], np.int8)
    with pytest.raises(OverflowError):
        of_lists([[1], [2**40]], np.int32)


def test_texts() -> None:
    texts = ["a", "", "naïve \N{GRINNING FACE}", "two\nlines"]
    assert of_texts(texts).equals(pa.array(texts)) and of_texts([]).equals(pa.array([], pa.string()))
    with pytest.raises(UnicodeEncodeError):
        of_texts(["fine", "\ud800"])


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.float32(), pa.bool_()], ids=str)
def test_arrays_as_numpy(kind: Any) -> None:
    array = pa.array([1, 0, 1, 1, 0, 1, 0, 0, 0, 1], pa.int8()).cast(kind)
    for part in (array, array.slice(3, 5), array.slice(2, 0)):
        found = as_numpy(part)
        assert found.tolist() == part.to_pylist() and found.dtype == kind.to_pandas_dtype()


def test_pandas_is_not_imported() -> None:
    code = """
import sys
import numpy as np, pyarrow as pa
from burnish.data.arrow_arrays import as_numpy, of_lists, of_numbers, of_texts
from burnish.data.arrow_rows import ArrowRows
table = pa.table({"n": of_numbers([1, 2], np.int64), "l": of_lists([[1], []], np.int32), "t": of_texts(["a", "b"])})
rows = ArrowRows(table)
print(rows[0], rows["l"][:], list(rows["t"]), as_numpy(table["n"].chunk(0).is_null()))
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["False"], done.stdout + done.stderr
