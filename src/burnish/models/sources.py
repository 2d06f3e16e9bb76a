"""Where a pretrained model is: a folder, a GGUF file, or a name on the hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.core.errors import SettingError, did_you_mean

_WEIGHTS = (".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json")


@dataclass(frozen=True)
class ModelSource:
    """What `from_pretrained` is called with, and how the source is called in messages."""

    name: str
    label: str
    wanted: str = "model"
    is_local: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def is_gguf(self) -> bool:
        return "gguf_file" in self.options

    def missing_text(self) -> str:
        """How a message begins that says why it could not be loaded."""
        if self.is_local:
            return f"The {self.wanted} in {self.label} could not be loaded."
        return (
            f"{self.label!r} is no folder here, and no {self.wanted} of this name could be loaded from the Hugging "
            "Face hub or its cache. Check the spelling and the connection, or give the path of a local folder."
        )


def find_source(name_or_path: str, wanted: str = "model", with_weights: bool = False) -> ModelSource:
    """Finds out what a name stands for, and checks that a local one is complete.

    Raises:
        SettingError: a path that does not exist, or a folder without config or weights.
    """
    path = Path(name_or_path).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        options = {"gguf_file": path.name}
        return ModelSource(str(path.parent), str(path), wanted, is_local=True, options=options)
    if path.is_file():
        raise SettingError(f"{path} is a file. A {wanted} is a folder that holds a config.json, or a .gguf file.")
    if path.is_dir():
        _check_folder(path, wanted, with_weights)
        return ModelSource(str(path), str(path), wanted, is_local=True)
    if _looks_like_path(name_or_path):
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        near = did_you_mean(path.name, beside)
        raise SettingError(f"There is no {wanted} at {name_or_path}: the path does not exist.{near}")
    return ModelSource(name_or_path, name_or_path, wanted)


def reason_of(error: BaseException) -> str:
    """The first line of an error, as the reason that a message ends with."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"({type(error).__name__}: {lines[0]})" if lines else f"({type(error).__name__})"


def _check_folder(folder: Path, wanted: str, with_weights: bool) -> None:
    names = sorted(entry.name for entry in folder.iterdir())
    if wanted == "tokenizer" or "adapter_config.json" in names:
        return
    if "config.json" not in names:
        raise SettingError(f"The folder {folder} holds no model: it has no config.json.{_whats_there(folder, names)}")
    if with_weights and not any(name.endswith(_WEIGHTS) for name in names):
        raise SettingError(
            f"The folder {folder} has a config.json but no weights (model.safetensors, or pytorch_model.bin)."
            f"{_whats_there(folder, names)}"
        )


def _whats_there(folder: Path, names: list[str]) -> str:
    """What the folder has instead, and the model that was probably meant."""
    checkpoints = [name for name in names if (folder / name / "config.json").is_file()]
    files = [name for name in names if name.endswith(".gguf")]
    if checkpoints or files:
        return f" Did you mean {folder / (checkpoints or files)[-1]}?"
    if not names:
        return " It is empty."
    return f" It has {', '.join(names[:6])}{', …' if len(names) > 6 else ''}."


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name or name.endswith(".gguf")
