"""What decides which examples a step holds, compared between a checkpoint and now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.core.errors import CheckpointError

from . import files

Change = tuple[str, Any, Any]

NUM_PROCESSES = "num_processes"
STEP_SIZE = "examples per step (batch size)"
STREAM_ORDER = "order of the stream (seeds of shuffle and of mixing)"
STREAM_FILES = "files of the stream (number, digest of their names)"
PARTS = "parts in which the stream is read (split_stream)"

_FINGERPRINT = (
    "The fingerprint is of some rows as the model gets them: other files, another order, or the same texts with "
    "another tokenizer, prompt or cut change it.\n"
)


def _about(changes: list[Change]) -> str:
    """What is good to know of these changes, a sentence a line."""
    told = _FINGERPRINT if _tells_content(changes) else ""
    for name, old, _ in changes:
        if name == STREAM_ORDER:
            told += "A stream that is shuffled without a seed has another order each time: give it a seed.\n"
        if name == STEP_SIZE:
            told += (
                "Another batch size is fine where per_device_train_batch_size x gradient_accumulation_steps x "
                f"processes stays {old}; or with train_sampling_strategy 'random' or 'sequential', without packing "
                "and dataloader_drop_last.\n"
            )
    return told


def _tells_content(changes: list[Change]) -> bool:
    return any("fingerprint" in name for name, *_ in changes)


def compare_positions(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """(setting, in the checkpoint, now) for each setting that both know and that differs."""
    compared = {name: value for name, value in now.items() if name != NUM_PROCESSES}  # who computes a step is free
    now = json.loads(files.as_json(compared))  # as a checkpoint would hold it: lists for tuples, plain numbers
    return [(name, saved[name], value) for name, value in now.items() if name in saved and saved[name] != value]


def refuse_if_changed(checkpoint: Path | str, saved: Mapping[str, Any] | None, now: Mapping[str, Any]) -> None:
    """Refuses a resume in which the next step would not hold the examples that it should.

    Args:
        saved: the position in the checkpoint; None where it holds none (one of transformers).

    Raises:
        CheckpointError: with a table of what has changed, and what to do.
    """
    changes = compare_positions(saved or {}, now)
    if not changes:
        return
    rows = [("setting", "checkpoint", "now"), *((name, str(old), str(new)) for name, old, new in changes)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    table = "\n".join(
        "  " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )
    raise CheckpointError(
        f"{checkpoint} cannot be gone on from with other data or another division of the data into steps: examples of "
        f"this pass would be seen twice or never.\n{table}\n{_about(changes)}"
        "Set these back to the values of the checkpoint, or start a new run from its weights: "
        f"model_name_or_path={str(checkpoint)!r} without resume_from_checkpoint."
    )
