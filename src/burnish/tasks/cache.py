"""Where parsed files and tokenised rows are kept between runs, under keys made of content alone.

A key never depends on paths, dates, or the state of a Python object, so that the same data with the same settings are
found again, and changed data never are.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import datasets

VERSION = "1"
"""Part of every key: raised when what is stored changes its meaning."""


def cache_folder() -> Path:
    """`burnish` in the cache of `datasets` (set by HF_DATASETS_CACHE). It can be deleted at any time."""
    import datasets

    folder = Path(datasets.config.HF_DATASETS_CACHE) / "burnish"
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


def key_of_rows(rows: datasets.Dataset, columns: list[str]) -> str:
    """A key for the values of some columns, in the order of the rows."""
    digest = hashlib.blake2b(digest_size=16)
    for table in rows.select_columns(columns).with_format("arrow").iter(10_000):
        for batch in table.combine_chunks().to_batches():
            digest.update(batch.serialize())
    return key_of("rows", columns, digest.digest())


def stored(key: str, build: Callable[[], datasets.Dataset]) -> datasets.Dataset:
    """The dataset kept under `key`; built and kept where there is none yet. Not kept where the disk refuses it."""
    import datasets

    try:
        folder = cache_folder() / key
    except OSError:
        return build()
    with quiet_datasets():
        if not folder.exists():
            built = build()
            with contextlib.suppress(OSError):
                _write(built, folder)
            if not folder.exists():
                return built
        return datasets.Dataset.load_from_disk(str(folder))


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


def _write(rows: Any, folder: Path) -> None:
    """Written aside and renamed: a run that is killed, or one at the same time, leaves no half folder."""
    aside = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder.parent))
    try:
        rows.save_to_disk(str(aside / "rows"))
        with contextlib.suppress(FileExistsError):
            os.rename(aside / "rows", folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
