"""Generated texts as lines to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

LONGEST = 160
"""Characters of a text that are shown."""


def how_many(num_texts: int, num_rows: int | None) -> str:
    """Before they are generated: how many there will be, and of how many rows in all where they are a sample."""
    some = num_rows is not None and num_rows > num_texts
    return f"generating texts for {num_texts:,} rows" + (f" of {num_rows:,} (generation_max_rows)" if some else "")


def text_lines(texts: Sequence[Mapping[str, Any]], path: Any) -> Iterator[str]:
    """Some texts, each with the row, its prompt, its own text and the generated one; and where all of them are.

    Args:
        texts: mappings with "row", "prompt", "reference" (may be None) and "generated".
    """
    for text in texts:
        mark = f"  row {text['row']}"
        yield f"{mark:<10}  prompt     {shown(text['prompt'], end=True)}"
        if text["reference"] is not None:
            yield f"{'':10}  reference  {shown(text['reference'])}"
        yield f"{'':10}  generated  {shown(text['generated'])}"
    yield f"texts: {path}"


def shown(text: str, end: bool = False) -> str:
    """On one line, and cut where it is long: behind its beginning, or before its `end`."""
    line = " ".join(text.split())
    if len(line) <= LONGEST:
        return line
    return f"…{line[1 - LONGEST :]}" if end else f"{line[: LONGEST - 1]}…"
