"""The files of a new model into the folder of an older one, so that a crash leaves one of the two.

The folder holds more than the model (checkpoints, logs), so it cannot be exchanged by one rename. The new files are
prepared in a draft beside them; once all of them are on the disk, a list of them is put there, and each is moved by a
rename. A draft that has its list when its process is gone is moved by whoever comes next: from the list on, the model
is the new one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from . import files, layout

LIST = ".complete.json"
"""In a draft: the names of all its files, written last."""
_WEIGHT_FILE = re.compile(r"(model|pytorch_model|adapter_model)(-\d+-of-\d+)?\.(safetensors|bin)(\.index\.json)?")


def seal(draft: Path) -> list[str]:
    """Says that a draft is complete, once it is on the disk. Returns the names of its files."""
    names = sorted(path.relative_to(draft).as_posix() for path in draft.rglob("*") if path.is_file())
    files.sync_tree(draft)
    files.replace_json(draft / LIST, {"files": names})
    return names


def is_sealed(draft: Path) -> bool:
    return (draft / LIST).is_file()


def move_in(draft: Path, folder: Path) -> None:
    """Moves the files of a sealed draft into `folder`, those that are still there; removes the draft, and the weights
    of an older model that the new one does not have."""
    names = files.read_json(draft / LIST)["files"]
    for name in sorted(names, key=_turn):
        if (draft / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(draft / name, folder / name)
    files.sync(folder)
    _remove_others(folder, names)
    shutil.rmtree(draft, ignore_errors=True)


def is_weight_file(name: str) -> bool:
    """Whether a file of this name holds weights of a model or an adapter, or says which of its files do."""
    return _WEIGHT_FILE.fullmatch(name) is not None


def _turn(name: str) -> tuple[int, str]:
    """Shards first and what decides which of them are read last, so that readers see the older model for longest."""
    decides = name in (layout.WEIGHTS, layout.WEIGHTS_INDEX, *layout.ADAPTER_WEIGHTS)
    return 2 if decides else 0 if is_weight_file(name) else 1, name


def _remove_others(folder: Path, names: Iterable[str]) -> None:
    known = set(names)
    for path in folder.iterdir():
        if is_weight_file(path.name) and path.name not in known:
            path.unlink()
    files.sync(folder)
