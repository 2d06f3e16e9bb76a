"""Reads a table of rows from a file, a saved folder or the hub, with errors that say which row is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from burnish.core.errors import DataError, did_you_mean
from burnish.data.arrow_arrays import of_texts
from burnish.data.arrow_rows import ArrowRows

from . import csv_rows, json_rows, tagged_words
from .cache import key_of, key_of_file, quiet_datasets, stored
from .shards import are_shards, first_line, shards
from .text_lines import read_lines

if TYPE_CHECKING:
    import datasets

    Rows: TypeAlias = ArrowRows | datasets.Dataset

Columns = dict[str, list[Any]]
_BATCH = 10_000  # rows kept together in the cache


def _read_text(path: Path) -> Columns:
    lines = read_lines(path)
    if not lines:
        raise DataError(f"{path}: the file is empty.")
    return {"text": lines}


READERS: dict[str, Callable[[Path], Columns]] = {
    ".csv": csv_rows.read_csv,
    ".tsv": csv_rows.read_csv,
    ".tab": csv_rows.read_csv,
    ".json": json_rows.read_json,
    ".jsonl": json_rows.read_jsonl,
    ".ndjson": json_rows.read_jsonl,
    ".txt": _read_text,
    ".conll": tagged_words.read_conll,
    ".bio": tagged_words.read_conll,
    ".iob": tagged_words.read_conll,
}
"""How a text file is read, by the ending of its name (before `.gz`)."""

LINES: dict[str, Callable[[Path, int], int | None]] = {
    ".csv": csv_rows.line_of_row,
    ".tsv": csv_rows.line_of_row,
    ".tab": csv_rows.line_of_row,
    ".jsonl": json_rows.line_of_row,
    ".ndjson": json_rows.line_of_row,
}
"""Which line of a file a row stands on."""

ENDINGS = (*READERS, ".parquet")


@dataclass(frozen=True)
class Table:
    """Rows and where they come from, so that a message can point at one."""

    rows: Rows
    source: str
    """Path of the file or folder, or name on the hub."""

    def place(self, row: int) -> str:
        """ "reviews.csv, row 12 (line 13)" for row 11 counted from 0. Reads the file again to find the line."""
        path = Path(self.source)
        find = LINES.get(_ending(path)) if path.is_file() else None
        line = find(path, row) if find else None
        return f"{self.source}, row {row + 1}" + (f" (line {line})" if line else "")


def read_table(
    path_or_name: str | Path,
    split: str = "train",
    *,
    config_name: str | None = None,
    read_txt: Callable[[Path], Columns] | None = None,
) -> Rows:
    """Reads CSV, TSV, JSON, JSONL, plain text (each also `.gz`), Parquet, a folder saved by `datasets`, or a data set
    of the hub. Values of CSV and TSV stay text.

    Args:
        path_or_name: also a pattern (`rows-*.parquet`), and files of object storage or the web (`s3://…`), which are
            copied into the cache.
        split: which part of a folder or a data set of the hub.
        config_name: configuration of a data set of the hub.
        read_txt: how a `.txt` file is read, if not as one row a line.

    Raises:
        DataError: there is no such file, it cannot be read, it has no rows, or a row of it is malformed.
    """
    path, readers = Path(path_or_name).expanduser(), {**READERS, ".txt": read_txt or _read_text}
    if are_shards(str(path_or_name)):
        files = shards(str(path_or_name))
        rows = _joined(files, [_read_file(file, readers) for file in files])
    elif path.is_dir():
        rows = _read_folder(path, split)
    elif path.is_file():
        rows = _read_file(path, readers)
    elif _looks_like_file(str(path_or_name)):
        raise DataError(_missing_file(path))
    else:
        rows = _read_hub(str(path_or_name), config_name, split)
    if not len(rows):
        raise DataError(f"{path_or_name}: there are no rows in it.")
    return rows


def _read_file(path: Path, readers: dict[str, Callable[[Path], Columns]]) -> Rows:
    ending = _ending(path)
    if ending not in ENDINGS:
        raise DataError(f"{path}: the name must end in one of {', '.join(ENDINGS)} to say how the file is read.")
    try:
        if path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty.")
        if ending == ".parquet":
            import datasets

            with quiet_datasets():
                return datasets.Dataset.from_parquet(str(path))
        read = readers[ending]
        return stored(key_of(key_of_file(path), read.__name__), lambda: _typed(path, read(path)))
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror or error}).") from error
    except Exception as error:  # pyarrow and datasets raise many kinds for a file that is no Parquet
        raise DataError(f"{path}: this cannot be read as {ending[1:].upper()} ({first_line(error)}).") from error


def _joined(files: list[Path], parts: list[Rows]) -> Rows:
    """The rows of several files, one file after the other."""
    if len(parts) == 1:
        return parts[0]
    for file, part in zip(files, parts, strict=True):
        if sorted(part.column_names) != sorted(parts[0].column_names):
            raise DataError(
                f"{file} has the columns {', '.join(part.column_names)}, and {files[0]} has "
                f"{', '.join(parts[0].column_names)}. Give all files the same."
            )
    try:
        if all(isinstance(part, ArrowRows) for part in parts):
            import pyarrow

            return ArrowRows(pyarrow.concat_tables([part.table for part in parts], promote_options="permissive"))
        import datasets

        return datasets.concatenate_datasets([_as_dataset(part) for part in parts])
    except Exception as error:  # pyarrow and datasets raise many kinds where types differ
        raise DataError(f"{files[0]} and the files after it make no table together ({first_line(error)}).") from error


def _as_dataset(rows: Rows) -> datasets.Dataset:
    import datasets

    return datasets.Dataset(rows.table) if isinstance(rows, ArrowRows) else rows


def _typed(path: Path, columns: Columns) -> list[Any]:
    """The columns as Arrow record batches."""
    import pyarrow

    def array(name: str) -> pyarrow.Array:
        try:
            return of_texts(columns[name]) if _are_texts(columns[name]) else pyarrow.array(columns[name])
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError, UnicodeEncodeError) as error:
            row, value = _first_unfit(columns[name])
            raise DataError(
                f"{path}, row {row + 1}: column {name!r} holds {ascii(value)[:60]}, which does not fit the rows above "
                f"it ({first_line(error)}). Give all rows the same type."
            ) from error

    batches: list[Any] = pyarrow.table({name: array(name) for name in columns}).to_batches(max_chunksize=_BATCH)
    return batches


def _are_texts(values: list[Any]) -> bool:
    return all(type(value) is str for value in values)


def _first_unfit(values: list[Any]) -> tuple[int, Any]:
    """The first value that makes no column together with those before it, found by halving."""
    import pyarrow

    good, bad = 0, len(values)  # the first `good` values make a column, the first `bad` do not
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            pyarrow.array(values[:middle])
            good = middle
        except (pyarrow.ArrowException, OverflowError, UnicodeEncodeError):
            bad = middle
    return bad - 1, values[bad - 1]


def _read_folder(path: Path, split: str) -> datasets.Dataset:
    import datasets

    try:
        with quiet_datasets():
            found = datasets.load_from_disk(str(path))
    except FileNotFoundError as error:
        names = sorted(entry.name for entry in path.iterdir() if _ending(entry) in ENDINGS)
        inside = f" Give one of its files: {', '.join(names[:6])}." if names else ""
        raise DataError(f"{path}: the folder was not saved by datasets (`save_to_disk`).{inside}") from error
    if isinstance(found, datasets.Dataset):
        return found
    if split not in found:
        raise DataError(f"{path}: there is no split {split!r}. It has {', '.join(map(repr, found))}.")
    return found[split]


def _read_hub(name: str, config_name: str | None, split: str) -> datasets.Dataset:
    import datasets

    try:
        with quiet_datasets():
            return datasets.load_dataset(name, config_name, split=split)
    except Exception as error:  # every kind of network, cache and format error ends here
        raise DataError(
            f"{name!r} is no file or folder here, and could not be loaded from the Hugging Face hub or its cache "
            f"({first_line(error)}). Check the spelling and the connection, or give a file with --train_file."
        ) from error


def _missing_file(path: Path) -> str:
    folder = path.parent
    if path.exists():
        return f"{path}: this is no file that can be read twice. Save it as a file."
    if not folder.is_dir():
        return f"{path}: there is no such file, and no folder {folder}."
    beside = [entry.name for entry in sorted(folder.iterdir()) if entry.is_dir() or _ending(entry) in ENDINGS]
    near = did_you_mean(path.name, beside)
    there = f" In {folder} are: {', '.join(beside[:6])}." if beside and not near else ""
    return f"{path}: there is no such file.{near}{there}"


def _ending(path: Path) -> str:
    return Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


def _looks_like_file(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or _ending(Path(name)) in ENDINGS
