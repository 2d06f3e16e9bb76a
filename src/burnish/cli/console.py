"""What the command prints: aligned text, and rich tables where a person watches. Of several processes, the first one
prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from burnish.core.processes import launch

Rows = Sequence[Sequence[str]]


def is_terminal() -> bool:
    """Whether a person watches the output."""
    return sys.stdout.isatty()


def say(text: str = "") -> None:
    """One line of output, seen at once."""
    if launch().index == 0:
        print(text, flush=True)


def complain(text: str) -> None:
    """One line for a person, beside the output."""
    print(text, file=sys.stderr, flush=True)


def print_pairs(title: str, pairs: Sequence[tuple[str, str]]) -> None:
    """A title, and what there is to know of it as (what, value), a line each."""
    if is_terminal():
        _print_rich(title, (), pairs)
        return
    width = max((len(what) for what, _ in pairs), default=0)
    say(title)
    for what, value in pairs:
        first, *more = value.splitlines() or [""]
        say(f"  {what.ljust(width)}  {first}".rstrip())
        for line in more:
            say(f"  {' ' * width}  {line}")


def print_table(title: str, columns: Sequence[str], rows: Rows) -> None:
    """A title, a line of column names, and the rows; numbers to the right."""
    if is_terminal():
        _print_rich(title, columns, rows)
        return
    if title:
        say(title)
    for line in table_lines(columns, rows):
        say(f"  {line}")


def table_lines(columns: Sequence[str], rows: Rows) -> list[str]:
    """The lines of an aligned table, its column names first."""
    lines = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    right = [all(is_number(row[i]) for row in rows) and bool(rows) for i in range(len(columns))]
    return [
        "  ".join(
            cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    ]


def cut(text: str, most: int) -> str:
    """A text of at most so many letters: its middle is left out, since begin and end tell names apart."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return text[: most - 1 - end] + "…" + (text[-end:] if end else "")


def is_number(text: str) -> bool:
    """Whether a cell holds a number, as in `0.85`, `1,200`, `12 %` or `3.2 s`."""
    try:
        float(text.replace(",", "").removesuffix("%").removesuffix("s").strip())
    except ValueError:
        return False
    return True


def _print_rich(title: str, columns: Sequence[str], rows: Rows) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    frame = box.SIMPLE_HEAD if columns else None
    table = Table(box=frame, show_header=bool(columns), padding=(0, 1, 0, 2) if frame is None else (0, 1))
    for i, column in enumerate(columns or [""] * (len(rows[0]) if rows else 0)):
        right = bool(columns) and all(is_number(row[i]) for row in rows)
        table.add_column(
            column, justify="right" if right else "left", style="cyan" if i == 0 else None, overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if launch().index > 0:
        return
    console = Console()
    if title:
        console.print(Text(title, style="bold"))
    console.print(table)
