"""Rows of a file in their order, and rows written to a file. The ending of the name says which format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from burnish.core.errors import UserError

Row = dict[str, Any]
SEPARATORS = {".csv": ",", ".tsv": "\t"}
LINES = (".jsonl", ".ndjson")
FORMATS = (*SEPARATORS, *LINES, ".json", ".parquet")


def read_rows(path: str | Path) -> list[Row]:
    """All rows of a file, of several by a pattern, or of a storage. Raises `DataError` naming file and row."""
    from burnish.tasks.files import read_table

    rows: list[Row] = read_table(path).to_list()
    return rows


def check_writable(path: Path) -> None:
    """Refuses a file that rows cannot be written to, before they are computed. Raises `UserError`."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"--output_file {path}: the name must end in one of {', '.join(FORMATS)}.")
    if path.is_dir():
        raise UserError(f"--output_file {path} is a folder.")


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Writes rows as CSV, TSV, JSONL, JSON or Parquet. Makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ending = path.suffix.lower()
    if ending == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    elif ending in LINES:
        _write_text(path, "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows))
    elif ending == ".json":
        _write_text(path, json.dumps(list(rows), ensure_ascii=False, indent=1, default=str) + "\n")
    else:
        _write_text(path, _table(rows, SEPARATORS[ending]))


def columns_of(rows: Iterable[Row]) -> list[str]:
    """All column names, in the order in which they first occur."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _table(rows: Sequence[Row], separator: str) -> str:
    buffer = io.StringIO()
    table = csv.DictWriter(buffer, columns_of(rows), delimiter=separator, lineterminator="\n")
    table.writeheader()
    table.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    """Lists and objects as JSON, probabilities to six places."""
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return f"{value:.6f}" if isinstance(value, float) else value


def _write_text(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
