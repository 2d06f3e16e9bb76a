"""Writes a checkpoint: all of it, or none."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from burnish.core.errors import CheckpointError
from burnish.core.progress import TrainerState

from . import adapters, files, layout, manifest, staging, tensors, weights
from .position import NUM_PROCESSES

_SPARE = 16 << 20  # bytes kept free for tokenizer, configs and the logs of the run


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint is made of, at one step.

    The parts are read while they are written, so they must not change meanwhile; a part may also be a stand-in whose
    ``state_dict()`` returns copies and whose `class_name` is that of the part (see `copies.held`).
    """

    model: nn.Module
    state: TrainerState
    run_id: str
    processing_class: Any = None
    """Tokenizer or processor: anything with ``save_pretrained``."""
    optimizer: Any = None
    scheduler: Any = None
    scaler: Any = None
    settings: dict[str, Any] = field(default_factory=dict)
    """The training arguments, for the record; never read back into a run."""
    position: dict[str, Any] = field(default_factory=dict)
    """What decides which examples a step holds (see `refuse_if_changed`)."""
    only_model: bool = False
    """Leaves out optimizer, scheduler and scaler."""
    write_model: Callable[[Path], None] | None = None
    """A user's own way to write the model into a folder. Weights that it does not write are added."""
    weights: dict[str, torch.Tensor] | None = None
    """Copies of the model's ``state_dict()``; the model's own tensors where they are not given."""
    model_written: bool = False
    """Whether the model lies in the folder already, whole or in parts."""
    random_states: dict[str, Any] | None = None
    """The global generators (see `random_states`); as they are when it is written where they are not given."""


def write(
    output_dir: Path | str,
    step: int,
    snapshot: Snapshot,
    staged: Path | None = None,
    others: Callable[[], dict[str, manifest.File]] = dict,
) -> Path:
    """Writes ``checkpoint-<step>`` in `output_dir`, replacing one of that name, and returns its path.

    The folder has its name only once every file in it, and a manifest of them, is on the disk.

    Args:
        staged: the folder of `stage` with what other processes have written; a new one by default.
        others: waits for what other processes write into it, and returns what they found of their files.

    Raises:
        CheckpointError: it could not be written (no space, no permission, a state that cannot be serialised). Nothing
            is left of it, an older checkpoint of that name still stands, and a later attempt may succeed.
    """
    output_dir = Path(output_dir)
    target = output_dir / layout.folder_name(step)
    with told_as(target):
        folder = staged or stage(output_dir, step, snapshot)
        try:
            _write_parts(folder, snapshot)
            known = others()
            files.sync_tree(folder)
            manifest.seal(
                folder,
                step=step,
                run_id=snapshot.run_id,
                world_size=world_size(snapshot),
                only_model=snapshot.only_model,
                known=known,
            )
            staging.publish(folder, target)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return target


def stage(output_dir: Path, step: int, snapshot: Snapshot) -> Path:
    """An empty folder to prepare a checkpoint in, on a disk with room for it. Raises `OSError`."""
    output_dir.mkdir(parents=True, exist_ok=True)
    staging.tidy(output_dir)
    _refuse_without_space(output_dir, snapshot)
    return staging.staging_folder(output_dir, step)


@contextlib.contextmanager
def told_as(target: Path) -> Iterator[None]:
    """Any failure becomes a `CheckpointError` that says what was not saved: which class a full disk raises depends on
    who writes."""
    try:
        yield
    except Exception as error:
        cause = cause_of(error)
        raise CheckpointError(f"{target.name} could not be written in {target.parent}: {cause}") from error


def cause_of(error: BaseException) -> BaseException:
    """The OSError behind an error where there is one: torch reports a full disk as a broken archive."""
    behind: BaseException | None = error
    while behind is not None and not isinstance(behind, OSError):
        behind = behind.__cause__ or behind.__context__
    return behind or error


def _write_parts(folder: Path, snapshot: Snapshot) -> None:
    if snapshot.write_model is not None:
        snapshot.write_model(folder)
    if not snapshot.model_written and (snapshot.write_model is None or not layout.holds_weights(folder)):
        weights.save_weights(snapshot.model, folder, state=snapshot.weights)
        save_processing_class(snapshot.processing_class, folder)
    if not snapshot.only_model:
        for name, part in stateful_parts(snapshot):
            files.save_tensors(folder / name, part.state_dict())
        _write_random_states(folder, snapshot)
    ours = {
        "format_version": layout.FORMAT_VERSION,
        "run_id": snapshot.run_id,
        "optimizer": _class_name(snapshot.optimizer),
        "state": snapshot.state.ours(),
        "position": snapshot.position,
    }
    contents = {
        layout.TRAINER_STATE: snapshot.state.familiar(),
        layout.BURNISH: ours,
        layout.TRAINING_ARGS: snapshot.settings,
    }
    for name, content in contents.items():
        (folder / name).write_text(files.as_json(content), encoding="utf-8")


def stateful_parts(snapshot: Snapshot) -> list[tuple[str, Any]]:
    """Optimizer, scheduler and scaler, as far as there are any, with the names of their files."""
    parts = (
        (layout.OPTIMIZER, snapshot.optimizer),
        (layout.SCHEDULER, snapshot.scheduler),
        (layout.SCALER, snapshot.scaler),
    )
    return [(name, part) for name, part in parts if part is not None]


def save_processing_class(processing_class: Any, folder: Path) -> None:
    """Writes a tokenizer or processor; nothing for an object that cannot write itself."""
    save = getattr(processing_class, "save_pretrained", None)
    if callable(save):
        save(folder)


def _class_name(part: Any) -> str | None:
    return None if part is None else getattr(part, "class_name", type(part).__name__)


def random_states(world_size: int) -> dict[str, Any]:
    """For a trainer of transformers that goes on from here. burnish itself counts its randomness and reads none."""
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "cpu": torch.get_rng_state(),
    }
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all() if world_size > 1 else torch.cuda.get_rng_state()
    return states


def _write_random_states(folder: Path, snapshot: Snapshot) -> None:
    processes = world_size(snapshot)
    states = snapshot.random_states or random_states(processes)
    stem = Path(layout.RNG_STATE).stem
    names = [layout.RNG_STATE] if processes == 1 else [f"{stem}_{rank}.pth" for rank in range(processes)]
    for name in names:
        torch.save(states, folder / name)


def world_size(snapshot: Snapshot) -> int:
    return int(snapshot.position.get(NUM_PROCESSES, 1))


def _refuse_without_space(output_dir: Path, snapshot: Snapshot) -> None:
    needed, free = bytes_needed(snapshot), shutil.disk_usage(output_dir).free
    if free < needed:
        raise OSError(
            f"the disk has {free / 1e6:.0f} MB free, and {needed / 1e6:.0f} MB are needed; make room, or keep fewer "
            "checkpoints with `save_total_limit`"
        )


def bytes_needed(snapshot: Snapshot) -> int:
    """Bytes that a checkpoint takes on the disk, some to spare among them."""
    return _SPARE + bytes_of(snapshot)


def bytes_of(snapshot: Snapshot) -> int:
    """Bytes of the tensors of a checkpoint, without those that lie in its folder already."""
    found = 0
    if not snapshot.model_written:
        found = bytes_of_model(snapshot.model) if snapshot.weights is None else bytes_in(snapshot.weights)
    if not snapshot.only_model and snapshot.optimizer is not None:
        found += bytes_in(snapshot.optimizer.state_dict())
    return found


def bytes_of_model(model: nn.Module) -> int:
    """Bytes of what is written of a model: its adapters where it has any, else all."""
    model = tensors.unwrapped(model)
    if adapters.names(model):
        return bytes_in([weight for weight in model.parameters() if weight.requires_grad])
    return bytes_in(list(model.parameters()) + list(model.buffers()))


def bytes_in(content: Any) -> int:
    """Bytes of all tensors in nested dicts and lists."""
    if isinstance(content, torch.Tensor):
        return content.numel() * content.element_size()
    if isinstance(content, dict):
        content = list(content.values())
    return sum(map(bytes_in, content)) if isinstance(content, (list, tuple)) else 0
