"""Tables that fit the terminal: long cells give way, and what does not fit at all is left out."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from ..console import cut, table_lines

SHORTEST = 12
"""Letters that a cell is never cut below."""
GAP = 2


def width_of_terminal() -> int | None:
    """Columns of the terminal; None where the output goes elsewhere, which may be as wide as it likes."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fitted(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, droppable: Sequence[str] = ()
) -> list[str]:
    """The lines of a table, at most `width` wide.

    The widest column is cut, then the next, down to `SHORTEST` letters; then the columns in `droppable` are left out,
    the first one first.
    """
    titles, cells = list(columns), [list(row) for row in rows]
    left = [name for name in droppable if name in titles]
    while width is not None:
        wide = _cut_to(titles, cells, width)
        if wide is not None or not left:
            cells = cells if wide is None else wide
            break
        at = titles.index(left.pop(0))
        titles.pop(at)
        for row in cells:
            row.pop(at)
    return table_lines(titles, cells)


def _cut_to(titles: list[str], cells: list[list[str]], width: int) -> list[list[str]] | None:
    """The cells, cut so that all lines fit; None where they do not, however short."""
    widths = [max(len(line[i]) for line in [titles, *cells]) for i in range(len(titles))]
    surplus = sum(widths) + GAP * (len(widths) - 1) - width
    while surplus > 0:
        widest = max(range(len(widths)), key=lambda i: widths[i])
        if widths[widest] <= max(SHORTEST, len(titles[widest])):
            return None
        widths[widest] -= 1
        surplus -= 1
    return [[cut(cell, most) for cell, most in zip(row, widths, strict=True)] for row in cells]


def size(num_bytes: float) -> str:
    """Bytes as a person writes them."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "B" or num_bytes >= 10 else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} TB"
