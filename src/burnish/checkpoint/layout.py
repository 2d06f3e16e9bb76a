"""The names in a checkpoint folder. Those that people and transformers know stay as they are; ours are few."""

from __future__ import annotations

import re
from pathlib import Path

from burnish.core.errors import CheckpointError

from . import files

PREFIX = "checkpoint-"

TRAINER_STATE = "trainer_state.json"
"""The fields of the progress that transformers knows."""
OPTIMIZER = "optimizer.pt"
SCHEDULER = "scheduler.pt"
SCALER = "scaler.pt"
RNG_STATE = "rng_state.pth"
TRAINING_ARGS = "training_args.json"
"""The settings of the run, as JSON: what is read back cannot run code."""

DEEPSPEED = "deepspeed"
"""A folder with what each process of a run with DeepSpeed has written, in place of the optimizer's file."""

PARTS = "parts"
"""A folder in which each process of a run that divides its model has written its part of the weights and of the
optimizer's state, in place of their files."""

BURNISH = "burnish.json"
"""The rest of the progress, the position in the data, and the run that wrote it."""
MANIFEST = "manifest.json"
"""Written last: every other file with its size and checksum."""
RUN = "run.json"
"""In the output folder: what the run is that wrote there last (see `run_manifest`)."""

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
OLD_WEIGHTS = "pytorch_model.bin"
OLD_WEIGHTS_INDEX = "pytorch_model.bin.index.json"
ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
TRAINABLE = "trainable.safetensors"
"""Beside adapters: weights that are trained but that the adapter's own file leaves out."""

FORMAT_VERSION = 1
"""Of the manifest and of burnish.json; a later burnish reads all earlier ones."""


def folder_name(step: int) -> str:
    return f"{PREFIX}{step}"


def step_of(checkpoint: Path) -> int | None:
    """The step in the name of a checkpoint folder; None for a folder of another name."""
    found = re.fullmatch(rf"{PREFIX}(\d+)", checkpoint.name)
    return int(found.group(1)) if found else None


def adapter_folders(folder: Path) -> list[Path]:
    """Where adapters lie: the folder itself, and one folder for each adapter that is not called "default"."""
    if not folder.is_dir():
        return []
    places = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    return [place for place in places if any((place / name).is_file() for name in ADAPTER_WEIGHTS)]


def holds_weights(folder: Path) -> bool:
    """Whether a folder has weights of a model or of adapters."""
    names = (WEIGHTS, WEIGHTS_INDEX, OLD_WEIGHTS, OLD_WEIGHTS_INDEX)
    return bool(adapter_folders(folder)) or any((folder / name).is_file() for name in names)


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights of a folder (not of an adapter).

    Raises:
        CheckpointError: there are none, or the index of shards cannot be read.
    """
    for whole, index in ((WEIGHTS, WEIGHTS_INDEX), (OLD_WEIGHTS, OLD_WEIGHTS_INDEX)):
        if (folder / whole).is_file():
            return [folder / whole]
        if (folder / index).is_file():
            return _shards(folder / index)
    if (folder / PARTS).is_dir():
        raise CheckpointError(
            f"{folder} holds its weights in the parts that processes have written (fsdp_config: 'state_dict_type': "
            f"'SHARDED_STATE_DICT'). Go on from it with resume_from_checkpoint, or make a whole model of it: burnish "
            f"merge {folder} MODEL_FOLDER"
        )
    raise CheckpointError(f"{folder} holds no weights: neither {WEIGHTS} nor {WEIGHTS_INDEX}.")


def _shards(index: Path) -> list[Path]:
    try:
        names = set(files.read_json(index)["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{index} cannot be read: {error}") from error
    return [index.with_name(name) for name in sorted(names)]
