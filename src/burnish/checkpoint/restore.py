"""Reads a checkpoint back into a run: its progress, its position, and the state of optimizer and scaler."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from burnish.core.divided import as_own, is_divided, mapped
from burnish.core.errors import CheckpointError
from burnish.core.progress import TrainerState

from . import files, in_use, layout
from .position import compare_positions, refuse_if_changed
from .verify import problem_with

__all__ = ["compare_positions", "read_position", "read_state", "refuse_if_changed", "restore_optimizer"]

logger = logging.getLogger(__name__)

SHAPED = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "state1", "state2")
"""Parts of an optimizer's state that have the shape of their parameter, in every optimizer that uses these names."""


def read_state(checkpoint: Path | str) -> TrainerState:
    """The progress in a checkpoint, ours or of transformers.

    Raises:
        CheckpointError: it cannot be read.
    """
    checkpoint = Path(checkpoint)
    try:
        state = TrainerState.load_from_json(checkpoint / layout.TRAINER_STATE)
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{checkpoint / layout.TRAINER_STATE} cannot be read: {error}") from error
    for name, value in _ours(checkpoint).get("state", {}).items():
        setattr(state, name, value)
    return state


def find_best(state: TrainerState, checkpoint: Path | str) -> None:
    """Sees to it that the best checkpoint of a run that goes on is one that is there: where it was written, or beside
    `checkpoint` if the folder of the run was moved. Where it is gone, the run begins to look for the best anew."""
    if state.best_model_checkpoint is None:
        return
    written = Path(state.best_model_checkpoint)
    beside = Path(checkpoint).parent / written.name
    problem = problem_with(beside, checksums=False)
    if problem is None and beside.resolve() != written.resolve():
        state.best_model_checkpoint = str(beside)
    elif problem is not None and problem_with(written, checksums=False) is not None:
        logger.warning("%s, the best so far, is not there any more (%s): a new best is looked for.", beside, problem)
        state.best_metric = state.best_global_step = state.best_model_checkpoint = None


def read_position(checkpoint: Path | str) -> dict[str, Any] | None:
    """What decided which examples a step held (see `refuse_if_changed`); None in a checkpoint of transformers."""
    return _ours(Path(checkpoint)).get("position")


def _ours(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / layout.BURNISH
    try:
        return files.read_json(path)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def restore_optimizer(
    checkpoint: Path | str,
    optimizer: Any,
    scheduler: Any = None,
    scaler: Any = None,
    state: dict[str, Any] | None = None,
) -> list[str]:
    """Fills optimizer, scheduler and scaler from a checkpoint, and returns the names of those it has no state for.

    Learning rate, betas, weight decay and every other setting of the optimizer stay those of now; moments and step
    counts come from the checkpoint, in the types they were saved in.

    Args:
        scheduler: only one that has a memory of its own (such as ``ReduceLROnPlateau``); the learning rate that it
            has come to is then taken from the checkpoint too. Leave it out where the rate follows from the step.
        state: of the optimizer, where it lies in the checkpoint in another form.

    Raises:
        CheckpointError: the state is of another optimizer or of other parameters, or a file is damaged.
    """
    with in_use.held(checkpoint):
        return _restore(Path(checkpoint), optimizer, scheduler, scaler, state)


def whole_optimizer_state(checkpoint: Path) -> dict[str, Any]:
    """The state of an undivided optimizer in a checkpoint.

    Raises:
        CheckpointError: it holds none, or its file is damaged.
    """
    path = checkpoint / layout.OPTIMIZER
    if not path.is_file():
        raise CheckpointError(
            f"{checkpoint} holds no state of an optimizer that this run can read: neither {layout.OPTIMIZER} nor one "
            "that its processes have divided. Start a new run from its weights: "
            f"model_name_or_path={str(checkpoint)!r} without resume_from_checkpoint."
        )
    state: dict[str, Any] = files.load_tensors(path)
    return state


def _restore(checkpoint: Path, optimizer: Any, scheduler: Any, scaler: Any, state: dict[str, Any] | None) -> list[str]:
    parts = {"optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    names = {"optimizer": layout.OPTIMIZER, "scheduler": layout.SCHEDULER, "scaler": layout.SCALER}
    asked = {name: part for name, part in parts.items() if part is not None}
    given = {} if state is None else {"optimizer": state}
    missing = [name for name in asked if name not in given and not (checkpoint / names[name]).is_file()]
    for name, part in asked.items():
        if name in missing:
            logger.warning(
                "%s has no state of the %s (%s): the %s starts from nothing, so this run is not the one that was "
                "interrupted. Checkpoints written with save_only_model=True are like this.",
                *(checkpoint, name, names[name], name),
            )
            continue
        in_parts = name == "optimizer" and any(map(is_divided, _parameters(part)))
        saved = given.get(name) or files.load_tensors(checkpoint / names[name], mapped=in_parts)
        if name == "optimizer":
            _fill_optimizer(part, saved, checkpoint, rate_too=scheduler is not None)
        else:
            part.load_state_dict(saved)
    return missing


def _fill_optimizer(optimizer: Any, saved: dict[str, Any], checkpoint: Path, rate_too: bool) -> None:
    _refuse_other_optimizer(optimizer, saved, checkpoint)
    now = optimizer.state_dict()["param_groups"]
    if rate_too:
        now = [_with_rate(group, before["lr"]) for group, before in zip(now, saved["param_groups"], strict=True)]
    weights = _parameters(optimizer)
    state = {place: _divided(entry, weights[place]) for place, entry in saved["state"].items()}
    optimizer.load_state_dict({"state": state, "param_groups": now})
    _give_back_types(optimizer, state)


def _divided(entry: dict[str, Any], weight: torch.Tensor) -> dict[str, Any]:
    """What is kept of a weight, in parts where the weight is."""
    divided: dict[str, Any] = mapped(entry, lambda value: as_own(weight, value))
    return divided


def _with_rate(group: dict[str, Any], rate: Any) -> dict[str, Any]:
    return {**group, "lr": torch.as_tensor(rate) if isinstance(group["lr"], torch.Tensor) else float(rate)}


def _refuse_other_optimizer(optimizer: Any, saved: dict[str, Any], checkpoint: Path) -> None:
    kind, kind_saved = type(optimizer).__name__, _ours(checkpoint).get("optimizer")
    if kind_saved not in (None, kind):
        raise CheckpointError(
            f"{checkpoint} holds the state of the optimizer {kind_saved}, and this run uses {kind}. Set `optim` back, "
            f"or start a new run from its weights: model_name_or_path={str(checkpoint)!r}."
        )
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    sizes_saved = [len(group["params"]) for group in saved["param_groups"]]
    if sizes != sizes_saved:
        raise CheckpointError(
            f"The optimizer in {checkpoint} has {sum(sizes_saved)} parameters in groups of {sizes_saved}, and that of "
            f"this run has {sum(sizes)} in groups of {sizes}. The same weights must be trainable as in the run that "
            "wrote it, with the same groups."
        )
    for index, parameter in enumerate(_parameters(optimizer)):
        for name, value in saved["state"].get(index, {}).items():
            if name in SHAPED and isinstance(value, torch.Tensor) and value.shape != parameter.shape:
                raise CheckpointError(
                    f"Parameter {index} of the optimizer in {checkpoint} has the shape {tuple(value.shape)}, and that "
                    f"of this run {tuple(parameter.shape)}: it is a checkpoint of another model."
                )


def _give_back_types(optimizer: Any, saved: dict[int, Any]) -> None:
    """``load_state_dict`` of torch casts moments to the type of their parameter, and loses bits if that is coarser."""
    for index, parameter in enumerate(_parameters(optimizer)):
        for name, value in saved.get(index, {}).items():
            filled = optimizer.state[parameter].get(name)
            both = isinstance(value, torch.Tensor) and isinstance(filled, torch.Tensor)
            if both and name != "step" and filled.dtype != value.dtype:
                optimizer.state[parameter][name] = value.to(filled.device)


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    """In the order that numbers them in a state dict."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
