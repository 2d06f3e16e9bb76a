"""Files that are on the disk when a call returns, and their checksums.

Looking at checkpoints must not cost the import of torch, which only reading and writing tensors needs.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from burnish.core.errors import CheckpointError

from . import process

_BLOCK = 1 << 20  # bytes read at a time for a checksum


def as_json(content: Any) -> str:
    """JSON text. What JSON does not know becomes a number or a list where it is one (numpy, torch), else its text."""
    return json.dumps(content, indent=2, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    to_list = getattr(value, "tolist", None)  # numpy arrays and scalars, torch tensors
    return to_list() if callable(to_list) else str(value)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises `ValueError` where the file holds none, `OSError` where it cannot be read."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return content


def replace_json(path: Path, content: Any) -> None:
    """Writes a small file so that a reader, or a crash, meets the old content or the new one and nothing between."""
    draft = path.with_name(f".{path.name}-{process.label()}")
    try:
        draft.write_text(as_json(content), encoding="utf-8")
        sync(draft)
        os.replace(draft, path)
        sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def save_tensors(path: Path, content: Any) -> None:
    """``torch.save``, refused where the file could not be read back with ``weights_only=True``.

    Raises:
        CheckpointError: the content holds objects of other classes than tensors and plain Python values.
    """
    import torch

    # An open file rather than a name: a full disk then shows as the OSError that it is.
    with path.open("wb") as file:
        torch.save(content, file)
    unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(str(path))
    if unsafe:
        raise CheckpointError(
            f"{path.name} would hold objects of {', '.join(sorted(unsafe))}, which could not be read back safely. "
            "Its `state_dict()` must hold tensors, numbers, strings, lists and dicts only; a class that is safe to "
            "load can be named with `torch.serialization.add_safe_globals`."
        )


def load_tensors(path: Path, *, mapped: bool = False) -> Any:
    """``torch.load`` on the CPU, tensors and plain values only.

    Args:
        mapped: leave tensors in the file until they are read: for processes that take a part each.

    Raises:
        CheckpointError: the file is damaged, or holds objects that could run code.
    """
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:
        raise CheckpointError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def sync(path: Path) -> None:
    """Waits until a file, or the list of names in a folder, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """`sync` for a folder and all below it, files first."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            sync(Path(place) / name)
        sync(Path(place))


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
