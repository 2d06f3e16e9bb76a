"""Opens text files, plain or gzipped, and explains why one cannot be read."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from burnish.core.errors import DataError

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def open_bytes(path: Path) -> BinaryIO:
    """The bytes of a file, unpacked where its name ends in `.gz`."""
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix.lower() == ".gz" else path.open("rb")


@contextlib.contextmanager
def open_text(path: Path, newline: str | None = None) -> Iterator[TextIO]:
    """A UTF-8 text file to read, with or without a byte order mark.

    Raises:
        DataError: it cannot be opened or unpacked, or some byte of it is not UTF-8; the message gives line and byte.
    """
    try:
        with open_bytes(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline=newline) as text:
            yield text
    except UnicodeDecodeError as error:
        raise DataError(_where_not_utf8(path)) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: this is no complete gzip file ({error}).") from error
    except OSError as error:
        raise DataError(f"{path}: the file cannot be read ({error.strerror or error}).") from error


def read_lines(path: Path, keep_ends: bool = False) -> list[str]:
    """The lines of a text file. With `keep_ends` all of them as they are; without, those that are not blank."""
    with open_text(path) as text:
        lines = list(text)
    return lines if keep_ends else [line.strip() for line in lines if line.strip()]


def shortened(text: str, length: int = 80) -> str:
    """A text for a message: on one line, cut at `length` characters."""
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= length else flat[: length - 1] + "…")


def _where_not_utf8(path: Path) -> str:
    with open_bytes(path) as raw:
        content = raw.read()
    if content.startswith(_UTF16):
        return f"{path}: the file is UTF-16, not UTF-8. Save it as UTF-8: iconv -f UTF-16 -t UTF-8 {path} > new_file"
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        start = content.rfind(b"\n", 0, error.start) + 1
        nearby = content[max(start, error.start - 20) : error.start + 20].splitlines()[0].decode("cp1252", "replace")
        return (
            f"{path}, line {line}: byte {error.start - start + 1} of the line (0x{content[error.start]:02x}) is not "
            f"UTF-8. In Windows-1252 it would read {shortened(nearby)}. If that looks right, convert the file: "
            f"iconv -f WINDOWS-1252 -t UTF-8 {path} > new_file"
        )
    return f"{path}: the file is not UTF-8."
