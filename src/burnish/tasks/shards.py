"""Files that are not one file here: several by a pattern, and those of object storage and the web, copied here once."""

from __future__ import annotations

import glob
import os
import tempfile
from pathlib import Path
from typing import Any

from burnish.core.errors import DataError

CONTENT = ("ETag", "etag", "checksum", "md5Hash", "content_md5", "LastModified", "last_modified", "mtime", "created",
           "updated", "size")  # fmt: skip
"""What file systems say of a file that tells one content of it from another."""


def are_shards(name: str) -> bool:
    """Whether a name means files elsewhere (`s3://bucket/rows.jsonl`) or a pattern (`rows-*.parquet`)."""
    return is_remote(name) or (glob.has_magic(name) and not Path(name).expanduser().exists())


def is_remote(name: str) -> bool:
    """Whether a name has a protocol, such as `s3://`."""
    return "://" in name


def shards(name: str) -> list[Path]:
    """The files that a name means, in the order of their names; those elsewhere as copies in the cache, made anew where
    the file has changed. Of several processes one copies a file, and the others wait for it.

    Raises:
        DataError: there is none, or they cannot be reached.
    """
    if not is_remote(name):
        found = [Path(path) for path in sorted(glob.glob(str(Path(name).expanduser()), recursive=True))]
        return _some(name, [path for path in found if path.is_file()])
    try:
        import fsspec

        system, path = fsspec.url_to_fs(name)
        paths = sorted(system.glob(path)) if glob.has_magic(path) else [path]
        return _some(name, [_copied(system, one) for one in paths])
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{name}: there is no such file.") from error
    except (ImportError, ValueError) as error:  # a protocol that is not known, or whose package is not installed
        raise DataError(f"{name}: {first_line(error)}.") from error
    except Exception as error:  # every file system has errors of its own
        raise DataError(f"{name} could not be read ({type(error).__name__}: {first_line(error)}).") from error


def _some(name: str, found: list[Path]) -> list[Path]:
    if not found:
        raise DataError(f"{name}: there is no file of that name.")
    return found


def _copied(system: Any, path: str) -> Path:
    from .cache import cache_folder, key_of, made_by_one

    info = system.info(path)
    told = [(fact, str(info[fact])) for fact in CONTENT if info.get(fact) is not None]
    folder = cache_folder() / "copies" / key_of(system.unstrip_protocol(path), told)
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / os.path.basename(path)
    with made_by_one(copy):
        if not copy.exists():
            handle, aside = tempfile.mkstemp(prefix=".copying-", dir=folder)
            os.close(handle)
            try:
                system.get_file(path, aside)
                os.replace(aside, copy)
            finally:
                Path(aside).unlink(missing_ok=True)
    return copy


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
