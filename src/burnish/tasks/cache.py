"""Where parsed files and tokenised rows are kept between runs, under keys made of content alone.

A key never depends on paths, dates, or the state of a Python object, so that the same data with the same settings are
found again, and changed data never are.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.data.arrow_rows import ArrowRows, arrow_chunks, write_file

if TYPE_CHECKING:
    import datasets

VERSION = "2"
"""Part of every key: raised when what is stored changes its meaning."""


def cache_folder() -> Path:
    """`burnish` in the cache of `datasets` (set by HF_DATASETS_CACHE, or HF_HOME). It can be deleted at any time."""
    from huggingface_hub.constants import HF_HOME

    folder = Path(os.environ.get("HF_DATASETS_CACHE") or Path(HF_HOME) / "datasets") / "burnish"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def key_of(*parts: object) -> str:
    """A name of 32 hexadecimal digits. Equal parts give equal names."""
    digest = hashlib.blake2b(VERSION.encode(), digest_size=16)
    for part in parts:
        digest.update(b"\0" + (part if isinstance(part, bytes) else repr(part).encode()))
    return digest.hexdigest()


def key_of_file(path: Path) -> str:
    """A key for the bytes of a file and the ending of its name, which says how it is read."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return key_of("file", path.suffixes[-2:], digest.digest())


def key_of_rows(rows: ArrowRows | datasets.Dataset, columns: list[str]) -> str:
    """A key for the values of some columns, in the order of the rows."""
    digest = hashlib.blake2b(digest_size=16)
    for table in arrow_chunks(rows, columns, 10_000):
        for batch in table.combine_chunks().to_batches():
            digest.update(batch.serialize())
    return key_of("rows", columns, digest.digest())


def stored(key: str, batches: Callable[[], Iterable[Any]], anew: bool = False) -> ArrowRows:
    """The rows kept under `key`; of `batches` (Arrow record batches, at least one) where there are none yet. Not kept
    where the disk refuses it.

    Args:
        anew: take `batches` even if rows are there.
    """
    try:
        file = cache_folder() / f"{key}.arrow"
        with made_by_one(file) as begun:
            if not file.exists() or (anew and not written_since(file, begun)):
                write_file(file, batches())
        return ArrowRows.from_file(file)
    except OSError:
        import pyarrow as pa

        return ArrowRows(pa.Table.from_batches(list(batches())))


@contextlib.contextmanager
def made_by_one(file: Path) -> Iterator[float]:
    """One process at a time makes a file; the others wait for it, however long it takes, and find it made. Gives the
    time when this process began to wait."""
    import filelock

    begun = time.time()
    with filelock.FileLock(f"{file}.lock"):
        yield begun


def written_since(file: Path, moment: float) -> bool:
    """Whether another process has written the file while this one waited."""
    return file.stat().st_mtime >= moment


@contextlib.contextmanager
def quiet_datasets() -> Iterator[None]:
    """Silences the progress bars of `datasets`, and puts them back as they were."""
    from datasets.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    before = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if not before:
            enable_progress_bars()
