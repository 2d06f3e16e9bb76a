"""A trained model folder, as commands find it: whether it is one, and what it was trained on and with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from burnish.checkpoint import layout
from burnish.checkpoint.run_manifest import RunManifest
from burnish.core.errors import UserError, did_you_mean
from burnish.tasks.recipe import TASK_KEY


def check_model(folder: Path, command: str = "predict") -> None:
    """Refuses what is no folder of a model, and names the one that may be meant. Raises `UserError`."""
    if not folder.is_dir():
        near = did_you_mean(folder.name, (p.name for p in folder.parent.iterdir())) if folder.parent.is_dir() else ""
        raise UserError(f"There is no folder {folder}.{near}")
    if (folder / layout.PARTS).is_dir() and not layout.holds_weights(folder):
        raise UserError(
            f"{folder} holds a model in the parts that several processes have written. Make a whole one of it first: "
            f"burnish merge {folder} MODEL_FOLDER"
        )
    if (folder / "config.json").is_file():
        return
    checkpoints = sorted(folder.glob("checkpoint-*"), key=lambda path: path.stat().st_mtime)
    if checkpoints:
        record = RunManifest.read(folder)
        raise UserError(
            f"{folder} holds a run that is not finished. Run its command again to finish it, or ask its newest "
            f"checkpoint: burnish {command} {checkpoints[-1]} … --task {(record and record.task) or 'TASK'}"
        )
    raise UserError(f"{folder} is not a model: it has no config.json. Give the --output_dir of a `burnish train`.")


def trained_task(folder: Path) -> dict[str, Any]:
    """What the config of a model says of its training: task, text_columns, label_columns, max_seq_length; empty for a
    model that burnish did not train."""
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return content.get(TASK_KEY) or {}


def run_settings(folder: Path) -> dict[str, Any]:
    """The settings of the run that a model or checkpoint is of, by name; empty where its manifest is not there."""
    record = RunManifest.read(folder) or RunManifest.read(folder.parent)
    return {name: setting.get("value") for name, setting in record.settings.items()} if record else {}
