"""The manifest: what a checkpoint holds, written last, so that a folder with a valid one is whole."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from . import files, layout

PACKAGES = (
    *("burnish", "torch", "transformers", "tokenizers", "safetensors", "datasets", "accelerate", "peft", "numpy"),
    *("bitsandbytes", "deepspeed"),
)


File = dict[str, Any]
"""What a manifest says of a file: ``{"bytes": size, "sha256": checksum}``."""


def seal(
    folder: Path, *, step: int, run_id: str, world_size: int, only_model: bool, known: Mapping[str, File] | None = None
) -> None:
    """Lists every file of `folder` with its size (bytes) and sha256, and writes the list there.

    The manifest carries a checksum of itself, so that a changed manifest is noticed as well.

    Args:
        known: what other processes have found of the files that they wrote, by name; those are not read again.
    """
    known = known or {}
    names = sorted({path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} | known.keys())
    content: dict[str, Any] = {
        "format_version": layout.FORMAT_VERSION,
        "step": step,
        "run_id": run_id,
        "world_size": world_size,
        "only_model": only_model,
        "written": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions(),
        "files": {name: known.get(name) or describe(folder / name) for name in names},
    }
    path = folder / layout.MANIFEST
    path.write_text(files.as_json({**content, "sha256": _checksum(content)}), encoding="utf-8")
    files.sync(path)
    files.sync(folder)


def describe(path: Path) -> File:
    """Size and checksum of a file, as it is read back."""
    return {"bytes": path.stat().st_size, "sha256": files.sha256(path)}


def read(folder: Path) -> dict[str, Any]:
    """The manifest of a checkpoint.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, or of a later format.
    """
    content = files.read_json(folder / layout.MANIFEST)
    expected = content.pop("sha256", None)
    if _checksum(content) != expected or not isinstance(content.get("files"), dict):
        raise ValueError("its content does not fit its checksum")
    if content["format_version"] > layout.FORMAT_VERSION:
        raise ValueError(
            f"it has format {content['format_version']}, and this burnish reads formats up to {layout.FORMAT_VERSION}"
        )
    return content


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Of Python and of those packages that a checkpoint may depend on and that are installed."""
    installed = {name: _version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **{name: found for name, found in installed.items() if found}}


@functools.cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
