"""Whether a data file is still the one that it was."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.core.errors import UserError, did_you_mean

DATA_FILES = ("train_file", "validation_file", "test_file")


def fingerprint(path: str | Path) -> dict[str, Any]:
    """Path, size and SHA-256 of a file; of a folder, those of the names, sizes and contents in it."""
    path = Path(path)
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    digest, num_bytes = hashlib.sha256(), 0
    for file in files:
        if path.is_dir():
            digest.update(str(file.relative_to(path)).encode())
        with file.open("rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
                num_bytes += len(block)
    return {"path": str(path.resolve()), "bytes": num_bytes, "sha256": digest.hexdigest()}


def fingerprints(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The fingerprints of the data files among the settings. Raises `UserError` for one that does not exist."""
    found = {}
    for name in DATA_FILES:
        path = values.get(name)
        if not path:
            continue
        if not Path(path).exists():
            raise UserError(f"--{name} {path}: there is no such file.{_alike(Path(path))}")
        found[name] = fingerprint(path)
    return found


def _alike(path: Path) -> str:
    return did_you_mean(path.name, (p.name for p in path.parent.iterdir())) if path.parent.is_dir() else ""
