"""Whether a folder is a checkpoint that can be trusted, and if not, why."""

from __future__ import annotations

import zipfile
from pathlib import Path

from burnish.core.errors import CheckpointError

from . import files, layout, manifest, tensors


def problem_with(checkpoint: Path | str, *, checksums: bool = True) -> str | None:
    """Why a folder is no good checkpoint; None where it is one.

    One of burnish has a manifest, and every file in it is there with the right size and, where `checksums` is set, the
    right content (reads the whole checkpoint). One of transformers has no manifest: its progress and its weights must
    be there and be readable.
    """
    checkpoint = Path(checkpoint)
    if not checkpoint.is_dir():
        return "it is not a folder" if checkpoint.exists() else "it does not exist"
    try:
        if not (checkpoint / layout.MANIFEST).exists():
            return _problem_without_manifest(checkpoint)
        listed = manifest.read(checkpoint)["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{layout.MANIFEST} is damaged: {error}"
    for name, expected in listed.items():
        problem = _problem_with_file(checkpoint / name, expected["bytes"], expected["sha256"] if checksums else None)
        if problem:
            return f"{name} {problem}"
    return None


def _problem_with_file(path: Path, size: int, checksum: str | None) -> str | None:
    try:
        found = path.stat().st_size
        if found != size:
            return f"has {found} bytes, and {size} were written"
        if checksum is not None and files.sha256(path) != checksum:
            return "does not hold what was written (its checksum differs)"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error}"
    return None


def _problem_without_manifest(checkpoint: Path) -> str | None:
    if (checkpoint / layout.BURNISH).exists():
        return f"it has no {layout.MANIFEST}, so it was not written to the end or has been changed since"
    try:
        files.read_json(checkpoint / layout.TRAINER_STATE)
    except FileNotFoundError:
        return f"{layout.TRAINER_STATE} is missing"
    except (OSError, ValueError) as error:
        return f"{layout.TRAINER_STATE} is damaged: {error}"
    try:
        _refuse_unreadable(checkpoint)
    except CheckpointError as error:
        return str(error)
    return None


def _refuse_unreadable(checkpoint: Path) -> None:
    """Reads the table of contents of weights and optimizer state: it does not fit a file that was cut off."""
    places = layout.adapter_folders(checkpoint)
    if places:
        paths = [place / name for place in places for name in layout.ADAPTER_WEIGHTS if (place / name).exists()]
    else:
        paths = tensors.weight_files(checkpoint)
    for path in [*paths, checkpoint / layout.OPTIMIZER]:
        if path.suffix == ".safetensors":
            _refuse_cut_safetensors(path)
        elif path.exists() and path.name == layout.OPTIMIZER and not zipfile.is_zipfile(path):
            raise CheckpointError(f"{path.name} is damaged: it is cut off, or no file of torch")
        elif path.name != layout.OPTIMIZER and not path.exists():
            raise CheckpointError(f"{path.name} is missing")


def _refuse_cut_safetensors(path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            file.keys()
    except FileNotFoundError:
        raise CheckpointError(f"{path.name} is missing") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path.name} is damaged: {error}") from error
