"""The state of an optimizer between DeepSpeed and everybody else: whole, by weight, in the form that torch gives it.

DeepSpeed's own files fit only the number of processes and the stage of ZeRO that wrote them. Its universal form has a
folder for each weight, which any number and any stage can read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from burnish.core.errors import CheckpointError
from burnish.core.zero_parts import is_part, num_elements, shape_of
from burnish.core.zero_settings import stage_of, value_at

from .deepspeed_config import half_precision

TAG = "state"
"""Name of the folder that DeepSpeed writes into."""
TOPOLOGY = "topology.json"
"""Beside DeepSpeed's own files: by what they were written, so that nobody has to guess it from their names."""
ON_DISK = "on a disk"
"""In the topology of a state that the processes had on a disk (nvme)."""
SCHEDULE = "schedule"
"""In the topology, the type of DeepSpeed's schedule, whose place is in the state; None for one of burnish."""
MOMENTS = ("exp_avg", "exp_avg_sq")
"""What the universal form knows of an optimizer: the moments of Adam."""
PREFIX = "module."
"""Before each name, since DeepSpeed sees the model in a shell."""
ZERO = "zero"
WEIGHT = "fp32.pt"


def topology(config: Mapping[str, Any], processes: int, optimizer: Any) -> dict[str, Any]:
    """What decides whether a state fits as it is."""
    return {
        "stage": stage_of(config),
        "processes": processes,
        "weights": half_precision(config),
        "optimizer": config["optimizer"]["type"] if "optimizer" in config else type(optimizer).__name__,
        **({ON_DISK: True} if is_on_disk(config) else {}),
    }


def words(topology: Mapping[str, Any] | None) -> str:
    """Who writes such a state."""
    if topology is None:
        return "an undivided optimizer"
    return ", ".join(f"{name} {value}" for name, value in topology.items())


def refuse_unlike(own: Mapping[str, Any], written: Mapping[str, Any] | None, folder: Path) -> None:
    """Raises `CheckpointError` where a run cannot take over a state that was written otherwise (None: undivided)."""
    kind = (
        "the optimizer's states on a disk (offload_optimizer, device nvme)" if own.get(ON_DISK) else "stage 0 of ZeRO"
    )
    if own.get(ON_DISK) or own["stage"] == 0 or (written and written["stage"] == 0):
        raise CheckpointError(
            f"An optimizer's state is not converted to or from {kind}: this run has {words(own)}; the checkpoint was "
            f"written by {words(written)}. Go on as it was written, or start a new run from the weights: "
            f"model_name_or_path={str(folder.parent)!r} without resume_from_checkpoint."
        )


def is_on_disk(config: Mapping[str, Any]) -> bool:
    """Whether the optimizer's states lie on a disk."""
    return bool(value_at(config, "zero_optimization.offload_optimizer.device") == "nvme")


def write_topology(folder: Path, topology: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TOPOLOGY).write_text(json.dumps(dict(topology), indent=2), encoding="utf-8")


def read_topology(folder: Path) -> dict[str, Any] | None:
    """By what a state was written; None where there is none. Raises `CheckpointError` for a damaged file."""
    try:
        found: dict[str, Any] = json.loads((folder / TOPOLOGY).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / TOPOLOGY} cannot be read: {error}") from error
    return found


def whole_state(
    folder: Path, scratch: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """What DeepSpeed has written into `folder`, as the ``state_dict()`` of an undivided optimizer. Takes the memory of
    the moments of all weights, and their space on the disk in `scratch`, which is empty.

    Raises:
        CheckpointError: DeepSpeed's tool failed, or the state is of another model.
    """
    written = read_topology(folder) or {}
    if written.get(ON_DISK) or written.get("stage") == 0:
        kind = "that had it on a disk (offload_optimizer, device nvme)" if ON_DISK in written else "at stage 0 of ZeRO"
        raise CheckpointError(
            f"The optimizer's state in {folder} was written by a run {kind}, and cannot be converted. Go on as it "
            "was written, or start a new run from the weights of the checkpoint."
        )
    _run_converter(folder / TAG, scratch / TAG)
    names = {id(weight): name for name, weight in model.named_parameters()}
    groups, state, number = [], {}, 0
    for group in optimizer.param_groups:
        first = number
        for weight in group["params"]:
            state[number] = _of_weight(scratch / TAG / ZERO / f"{PREFIX}{names[id(weight)]}", weight)
            number += 1
        groups.append({**{k: v for k, v in group.items() if k != "params"}, "params": list(range(first, number))})
    steps = _steps(scratch / TAG / ZERO)
    for entry in state.values():
        entry.setdefault("step", torch.tensor(float(steps)))
    return {"state": {k: v for k, v in state.items() if v.keys() != {"step"}}, "param_groups": groups}


def write_universal(
    folder: Path, whole: Mapping[str, Any], model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """An undivided optimizer's state, and the model's weights (see `write_weight` for those in parts), in the universal
    form.

    Raises:
        CheckpointError: the optimizer is none of the Adam family.
    """
    names = {id(weight): name for name, weight in model.named_parameters()}
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    step = 0.0
    for number, weight in enumerate(weights):
        entry = whole["state"].get(number, {})
        unknown = {k for k, v in entry.items() if isinstance(v, torch.Tensor)} - {"step", *MOMENTS}
        if unknown:
            raise CheckpointError(
                f"The optimizer of the checkpoint has {', '.join(sorted(unknown))} of each weight, and DeepSpeed can "
                "take over the moments of Adam only. Go on with the engine, the number of processes and the stage of "
                "ZeRO that wrote it, or start a new run from its weights."
            )
        step = max(step, float(entry.get("step", 0)))
        place = folder / ZERO / f"{PREFIX}{names[id(weight)]}"
        place.mkdir(parents=True)
        for moment in MOMENTS:
            value = entry.get(moment, torch.zeros(shape_of(weight)))
            _write(place / f"{moment}.pt", value.view(shape_of(weight)))
        if not is_part(weight):
            _write(place / WEIGHT, weight)
    for weight in weights:
        torch.save(torch.tensor(step), folder / ZERO / f"{PREFIX}{names[id(weight)]}" / "step.pt")
    groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    shared = {"ds_version": version("deepspeed"), "param_groups": groups}
    torch.save(
        {**shared, "optimizer_state_dict": {"state": {0: {"step": torch.tensor(step)}}, "param_groups": groups}},
        folder / ZERO / "optimizer_state.pt",
    )


def write_weight(folder: Path, name: str, value: torch.Tensor) -> None:
    """A whole weight, beside its state that `write_universal` has written there."""
    place = folder / ZERO / f"{PREFIX}{name}"
    if place.is_dir():  # others are not trained
        _write(place / WEIGHT, value)


def _write(path: Path, value: torch.Tensor) -> None:
    torch.save({"param": value.detach().to("cpu", torch.float32).clone(), "cat_dim": 0}, path)


def _of_weight(place: Path, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    found = {}
    for name in (*MOMENTS, "step"):
        path = place / f"{name}.pt"
        if path.is_file():
            value = torch.load(path, map_location="cpu", weights_only=True)
            value = value["param"] if isinstance(value, dict) else value
            if name != "step" and value.numel() != num_elements(weight):
                raise CheckpointError(
                    f"The state of {place.name.removeprefix(PREFIX)} has {value.numel()} numbers, and the weight "
                    f"{num_elements(weight)}: it is a checkpoint of another model."
                )
            found[name] = value if name == "step" else value.view(shape_of(weight))
    return found


def _steps(zero: Path) -> float:
    """Updates that were made, which ZeRO-3 notes for all weights at once."""
    content = torch.load(zero / "optimizer_state.pt", map_location="cpu", weights_only=False)  # written here and now
    states = content.get("optimizer_state_dict", {}).get("state", {})
    return max((float(entry["step"]) for entry in states.values() if "step" in entry), default=0.0)


def _run_converter(state: Path, target: Path) -> None:
    """DeepSpeed's own tool, in a process of its own."""
    command = [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state"]
    command += ["--input_folder", str(state), "--output_folder", str(target)]
    command += ["--num_extract_workers", "1", "--num_merge_workers", "1"]
    alone = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    done = subprocess.run(command, env=alone, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        told = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise CheckpointError(
            f"The state of DeepSpeed in {state} was written by another engine, number of processes or stage of ZeRO, "
            f"and DeepSpeed's tool could not convert it: {told[0]} Go on as it was written, or start a new run from "
            "the weights of the checkpoint."
        )
