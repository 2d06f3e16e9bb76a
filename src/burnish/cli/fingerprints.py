"""Whether a data file is still the one that it was."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.core.errors import UserError, did_you_mean
from burnish.core.secrets import hidden_in_text
from burnish.tasks.shards import are_shards, is_remote, shards

DATA_FILES = ("train_file", "validation_file", "test_file")


def fingerprint(path: str | Path) -> dict[str, Any]:
    """Path, size and SHA-256 of a file; of a folder, those of the names, sizes and contents in it; of several files,
    and of files elsewhere, those of the contents."""
    if are_shards(str(path)):
        shown = hidden_in_text(str(path)) if is_remote(str(path)) else str(Path(path).resolve())
        return {"path": shown, **_contents(Path(), shards(str(path)))}
    path = Path(path)
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return {"path": str(path.resolve()), **_contents(path, files, named=path.is_dir())}


def _contents(folder: Path, files: list[Path], named: bool = False) -> dict[str, Any]:
    digest, num_bytes = hashlib.sha256(), 0
    for file in files:
        if named:
            digest.update(str(file.relative_to(folder)).encode())
        with file.open("rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
                num_bytes += len(block)
    return {"bytes": num_bytes, "sha256": digest.hexdigest()}


def fingerprints(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The fingerprints of the data files among the settings. Raises `UserError` for one that does not exist."""
    found = {}
    for name in DATA_FILES:
        path = values.get(name)
        if not path:
            continue
        if not are_shards(str(path)) and not Path(path).exists():
            raise UserError(f"--{name} {path}: there is no such file.{_alike(Path(path))}")
        found[name] = fingerprint(path)
    return found


def _alike(path: Path) -> str:
    return did_you_mean(path.name, (p.name for p in path.parent.iterdir())) if path.parent.is_dir() else ""
