"""Whether a folder is a checkpoint that can be trusted, and if not, why."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from burnish.core.errors import CheckpointError

from . import files, layout, manifest


def problem_with(checkpoint: Path | str, *, checksums: bool = True) -> str | None:
    """Why a folder is no good checkpoint; None where it is one.

    One of burnish has a manifest, and every file in it is there with the right size and, where `checksums` is set, the
    right content (reads the whole checkpoint). One of transformers has no manifest: its progress and its weights must
    be there and be readable.
    """
    for name, problem in problems_with(checkpoint, checksums=checksums):
        return f"{name} {problem}".lstrip()
    return None


def problems_with(checkpoint: Path | str, *, checksums: bool = True) -> Iterator[tuple[str, str]]:
    """Every file that is not as it was written, and what is wrong with it; what is wrong with the whole, under "".

    Nothing for a good checkpoint (see `problem_with`).
    """
    checkpoint = Path(checkpoint)
    if not checkpoint.is_dir():
        yield "", "it is not a folder" if checkpoint.exists() else "it does not exist"
        return
    try:
        if not (checkpoint / layout.MANIFEST).exists():
            yield from _problems_without_manifest(checkpoint)
            return
        listed = {
            name: (expected["bytes"], expected["sha256"])
            for name, expected in manifest.read(checkpoint)["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield layout.MANIFEST, f"is damaged: {error}"
        return
    for name, (size, checksum) in listed.items():
        problem = _problem_with_file(checkpoint / name, size, checksum if checksums else None)
        if problem:
            yield name, problem


def unlisted(checkpoint: Path) -> list[str]:
    """Files of a checkpoint that its manifest does not know: put there since. They make it no worse."""
    known = {layout.MANIFEST, *manifest.read(checkpoint)["files"]}
    found = (path.relative_to(checkpoint).as_posix() for path in checkpoint.rglob("*") if path.is_file())
    return sorted(name for name in found if name not in known)


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


def _problems_without_manifest(checkpoint: Path) -> Iterator[tuple[str, str]]:
    if (checkpoint / layout.BURNISH).exists():
        yield "", f"it has no {layout.MANIFEST}, so it was not written to the end or has been changed since"
        return
    try:
        files.read_json(checkpoint / layout.TRAINER_STATE)
    except FileNotFoundError:
        yield layout.TRAINER_STATE, "is missing"
    except (OSError, ValueError) as error:
        yield layout.TRAINER_STATE, f"is damaged: {error}"
    yield from unreadable(checkpoint)


def unreadable(folder: Path) -> Iterator[tuple[str, str]]:
    """The files of weights and of an optimizer's state in a folder whose table of contents does not fit them."""
    try:
        paths = _files_of_tensors(folder)
    except CheckpointError as error:
        yield "", str(error)
        return
    for path in paths:
        problem = _problem_with_tensors(path)
        if problem:
            yield path.name, problem


def _files_of_tensors(checkpoint: Path) -> list[Path]:
    """The weights, and the optimizer's state where there is one."""
    places = layout.adapter_folders(checkpoint)
    if places:
        paths = [place / name for place in places for name in layout.ADAPTER_WEIGHTS if (place / name).exists()]
    else:
        paths = layout.weight_files(checkpoint)
    return [*paths, *([optimizer] if (optimizer := checkpoint / layout.OPTIMIZER).exists() else [])]


def _problem_with_tensors(path: Path) -> str | None:
    """Reads the table of contents: it does not fit a file that was cut off."""
    if not path.exists():
        return "is missing"
    if path.suffix == ".safetensors":
        return _cut_safetensors(path)
    if path.name == layout.OPTIMIZER and not zipfile.is_zipfile(path):
        return "is damaged: it is cut off, or no file of torch"
    return None


def _cut_safetensors(path: Path) -> str | None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:  # its names only, for which numpy is enough
            file.keys()
    except (OSError, SafetensorError) as error:
        return f"is damaged: {error}"
    return None
