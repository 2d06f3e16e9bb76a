"""Files that are not one file here: several by a pattern, and those of object storage and the web, copied here once."""

from __future__ import annotations

import contextlib
import glob
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from burnish.core.errors import DataError
from burnish.core.secrets import hidden_in_text

CONTENT = ("ETag", "etag", "checksum", "md5Hash", "content_md5", "Content-MD5", "Digest", "generation", "blob_id",
           "LastModified", "last_modified", "Last-Modified", "mtime", "modificationTime", "created", "updated",
           "size")  # fmt: skip
"""What file systems say of a file that tells one content of it from another."""

ACCESS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), and AWS_ENDPOINT_URL where it is not Amazon's",
}
"""What is set to reach a storage, by protocol."""


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
    with _told(name):
        import fsspec

        system, path = fsspec.url_to_fs(name)
        system.invalidate_cache()
        paths = sorted(system.glob(path)) if glob.has_magic(without_query(path)) else [path]
    return _some(name, [_copied(system, one) for one in paths])


def _some(name: str, found: list[Path]) -> list[Path]:
    if not found:
        raise DataError(f"{hidden_in_text(name)}: there is no file of that name.")
    return found


def without_query(path: str) -> str:
    """An address of the web without what follows its path, such as the signature of one that is signed."""
    return path.partition("?")[0] if path.startswith(("http://", "https://")) else path


def _copied(system: Any, path: str) -> Path:
    from .cache import cache_folder, key_of, made_by_one, written_since

    name = hidden_in_text(system.unstrip_protocol(path))
    with _told(name):
        info = system.info(path)
    told = [(fact, str(info[fact])) for fact in CONTENT if info.get(fact) is not None]
    folder = cache_folder() / "copies" / key_of(name, told)
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / os.path.basename(without_query(path))
    may_be_another = {fact for fact, _ in told} <= {"size"}
    with made_by_one(copy) as begun:
        if not copy.exists() or (may_be_another and not written_since(copy, begun)):
            _copy(system, path, copy, info.get("size"), name)
    return copy


def _copy(system: Any, path: str, copy: Path, size: int | None, name: str) -> None:
    handle, aside = tempfile.mkstemp(prefix=".copying-", dir=copy.parent)
    os.close(handle)
    try:
        with _told(name):
            system.get_file(path, aside)
        came = os.path.getsize(aside)
        if size is not None and came != size:
            raise DataError(f"{name}: {came:,} of {size:,} bytes came. Try again.")
        os.replace(aside, copy)
    finally:
        Path(aside).unlink(missing_ok=True)


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    """What goes wrong in a file system, as a `DataError` of the name of a file."""
    protocol, shown = name.partition("://")[0], hidden_in_text(name)
    try:
        yield
    except DataError:
        raise
    except (ImportError, ValueError) as error:  # a protocol that is not known, or whose package is not installed
        raise DataError(f"{shown}: {first_line(error)}.") from error
    except Exception as error:  # every file system has errors of its own
        reason = _reason(error)
        if isinstance(reason, FileNotFoundError):
            raise DataError(f"{shown}: there is no such file.") from error
        told = f"{type(reason).__name__}: {hidden_in_text(first_line(reason))}"
        raise DataError(f"{shown} could not be read ({told}).{_what_to_set(protocol)}") from error


def _reason(error: BaseException) -> BaseException:
    """Files of the web that cannot be reached, or are refused, are said to be missing."""
    cause = error.__cause__
    is_refused = getattr(cause, "status", None) not in (None, 404, 410)
    return cause if cause is not None and (isinstance(cause, OSError) or is_refused) else error


def _what_to_set(protocol: str) -> str:
    if protocol in ("http", "https"):
        return ""
    options = f"what {protocol}:// needs as FSSPEC_{protocol.upper()}_<OPTION>, or in a file in ~/.config/fsspec"
    return f" Set {ACCESS.get(protocol, options)}."


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
