"""Arrow arrays of Python values, and to numpy, by their buffers.

`pyarrow.array` and `to_numpy` import pandas, if only to ask whether a value is one of its own. This does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_BYTES = 2**31 - 1  # what 32-bit offsets reach


def as_numpy(array: Any) -> NDArray[Any]:
    """The numbers, or truth values, of an array without nulls; not copied, but for truth values."""
    import pyarrow as pa

    if pa.types.is_boolean(array.type):
        return np.from_dlpack(array.cast(pa.uint8())).astype(bool)
    return np.from_dlpack(array)


def of_numbers(values: Any, dtype: Any) -> Any:
    """An Arrow array of numbers of a numpy type. Raises `OverflowError` for one that does not fit."""
    import pyarrow as pa

    numbers = np.ascontiguousarray(values, dtype=dtype)
    return pa.Array.from_buffers(pa.from_numpy_dtype(dtype), len(numbers), [None, pa.py_buffer(numbers)])


def of_lists(rows: Sequence[Sequence[Any]], dtype: Any) -> Any:
    """An Arrow array of lists of numbers of a numpy type."""
    import pyarrow as pa

    ends = of_numbers(list(accumulate(map(len, rows), initial=0)), np.int32)
    return pa.ListArray.from_arrays(ends, of_numbers(np.fromiter(chain.from_iterable(rows), dtype), dtype))


def of_texts(texts: Sequence[str]) -> Any:
    """An Arrow array of texts. Raises `UnicodeEncodeError` for one that has no UTF-8."""
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    ends = list(accumulate(map(len, encoded), initial=0))
    wide = ends[-1] > _MOST_BYTES
    offsets = np.asarray(ends, dtype=np.int64 if wide else np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string() if wide else pa.string(), len(texts), buffers)
