"""Generated texts as lines to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

LONGEST = 160
"""Characters of a text that are shown."""


def text_lines(texts: Sequence[Mapping[str, Any]], num_texts: int, num_rows: int | None, path: Any) -> Iterator[str]:
    """How many texts there are and where, and some of them: the row, its prompt, its own text and the generated one.

    Args:
        texts: mappings with "row", "prompt", "reference" (may be None) and "generated".
        num_rows: of the dataset; a sample was generated where that is more.
    """
    some = num_rows is not None and num_rows > num_texts
    of_all = f" of {num_rows:,} (generation_max_rows)" if some else ""
    yield f"texts generated for {num_texts:,} rows{of_all}: {path}"
    for text in texts:
        mark = f"  row {text['row']}"
        yield f"{mark:<10}  prompt     {shown(text['prompt'], end=True)}"
        if text["reference"] is not None:
            yield f"{'':10}  reference  {shown(text['reference'])}"
        yield f"{'':10}  generated  {shown(text['generated'])}"


def shown(text: str, end: bool = False) -> str:
    """On one line, and cut where it is long: behind its beginning, or before its `end`."""
    line = " ".join(text.split())
    if len(line) <= LONGEST:
        return line
    return f"…{line[1 - LONGEST :]}" if end else f"{line[: LONGEST - 1]}…"
