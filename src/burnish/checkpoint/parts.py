"""Weights and optimizer states of which each process writes its part, and any number of processes can read.

The files are those of torch.distributed.checkpoint in safetensors, which hold no code: a tensor has the rows that a
process holds, and the file's metadata say which rows of the whole these are. Beside them stands as JSON what is no
tensor. Weights have their names in the model, and so has what an optimizer keeps of them.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from burnish.core.divided import copy_of, is_divided, offsets_of, put_away
from burnish.core.errors import CheckpointError

from . import files, layout, tensors
from .tensors import Tensors

MODEL, OPTIMIZER = "model.", "optimizer."
GROUPS = "optimizer.json"
PLACES, SHARED = "DCP_SHARDING_INFO", "shared_names"
"""In the metadata of a file, as JSON: where its tensors begin in the whole, which torch reads; and further names of
weights, each with the one under which the weight is found."""


def are_in(checkpoint: Path) -> bool:
    """Whether a checkpoint holds parts."""
    return (checkpoint / layout.PARTS).is_dir()


@dataclass(frozen=True)
class Part:
    """What one process writes of a checkpoint."""

    tensors: Tensors
    """The rows that this process holds, by the name of the whole."""
    offsets: dict[str, list[int]]
    """Where these begin in the whole, in each dimension."""
    rest: str | None = None
    """What an optimizer keeps that is no tensor, as JSON, on the process that writes it."""
    shared: dict[str, str] = field(default_factory=dict)
    """Further names of weights, each with the one under which the weight is found."""


def part_of(model: nn.Module, optimizer: Any, *, weights: bool, index: int) -> Part:
    """What the process of this number writes. Nothing is said between processes: of a tensor that all have whole the
    first one writes its own, and of equal parts one process writes each, another one from tensor to tensor.

    Args:
        optimizer: None leaves its state out.
        weights: whether weights are written, too.
    """
    put_away(model)
    own, shared = _own(model) if weights else ({}, {})
    content = {f"{MODEL}{name}": value for name, value in own.items()}
    rest = None
    if optimizer is not None:
        of_optimizer, others = _state_by_name(model, optimizer)
        content |= of_optimizer
        rest = files.as_json(others) if index == 0 else None
    found: Tensors = {}
    for number, (name, value) in enumerate(content.items()):
        if _is_written(value, number, index):
            found[name] = value.to_local() if is_divided(value) else value  # type: ignore[attr-defined]
    return Part(found, {name: offsets_of(content[name]) for name in found}, rest, shared)


def _is_written(value: torch.Tensor, number: int, index: int) -> bool:
    if not is_divided(value):
        return index == 0
    copy, copies = copy_of(value)
    return number % copies == copy and value.to_local().numel() > 0  # type: ignore[attr-defined]


def write(part: Part, checkpoint: Path, index: int, count: int) -> list[str]:
    """Writes what one of `count` processes holds, where `make_place` has been. Returns the names of its files."""
    names = [f"{layout.PARTS}/part-{index + 1:05}-of-{count:05}.safetensors"]
    sharding = {name: {"saved_offsets": offsets} for name, offsets in part.offsets.items()}
    said = {PLACES: json.dumps(sharding), "DCP_VERSION": "1.0", SHARED: json.dumps(part.shared)}
    tensors.write(part.tensors, checkpoint / names[0], said)
    if part.rest is not None:
        names.append(f"{layout.PARTS}/{GROUPS}")
        (checkpoint / names[1]).write_text(part.rest, encoding="utf-8")
    return names


def make_place(checkpoint: Path) -> None:
    """The folder of the parts, which the first process makes for all."""
    (checkpoint / layout.PARTS).mkdir()


def load_weights(model: nn.Module, checkpoint: Path) -> None:
    """Fills a model that the weights fit, whole or divided, in place. Each process reads what it holds; nothing is said
    between them.

    Raises:
        CheckpointError: a file is damaged.
    """
    put_away(model)
    _read(checkpoint, {f"{MODEL}{name}": value for name, value in _own(model)[0].items()})


def weight_shapes(checkpoint: Path) -> dict[str, torch.Size]:
    """The clean names of the weights, and the shape of the whole of each. Raises `CheckpointError`."""
    found = _found(checkpoint).items()
    return {name.removeprefix(MODEL): size for name, (size, _) in found if name.startswith(MODEL)}


def optimizer_state(checkpoint: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What parts hold of an optimizer, as its ``state_dict()``, divided as its weights are now.

    Raises:
        CheckpointError: it is of other weights, there is none, or a file is damaged.
    """
    rest, names = _rest(checkpoint), _names(model)
    weights = {names[id(weight)]: weight for weight in _weights(optimizer)}
    _refuse_other(checkpoint, rest, optimizer, weights)
    numbers = {name: number for number, name in enumerate(weights)}
    state: dict[int, dict[str, Any]] = {numbers[name]: dict(entry) for name, entry in rest["state"].items()}
    content: Tensors = {}
    for place, (size, dtype) in _found(checkpoint).items():
        if place.startswith(OPTIMIZER):
            name, _, key = place.removeprefix(OPTIMIZER).rpartition(".")
            content[place] = _empty(weights[name], size, dtype)
            state.setdefault(numbers[name], {})[key] = content[place]
    _read(checkpoint, content)
    return {"state": state, "param_groups": _numbered(rest["param_groups"], numbers)}


def _refuse_other(
    checkpoint: Path, rest: dict[str, Any], optimizer: torch.optim.Optimizer, weights: Mapping[str, torch.Tensor]
) -> None:
    kind = type(optimizer).__name__
    if rest["class"] != kind:
        raise CheckpointError(
            f"{checkpoint} holds the state of the optimizer {rest['class']}, and this run uses {kind}. Set `optim` "
            "back, or start a new run from its weights."
        )
    known = {name for group in rest["param_groups"] for name in group["params"]}
    if known != weights.keys():
        raise CheckpointError(
            f"The optimizer in {checkpoint} is of {len(known)} weights, and that of this run of {len(weights)}: "
            f"{tensors.listed(known ^ weights.keys())} are in one of the two. The same weights must be trainable as in "
            "the run that wrote it."
        )


def _numbered(groups: list[dict[str, Any]], numbers: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{**group, "params": [numbers[name] for name in group["params"]]} for group in groups]


def _own(model: nn.Module) -> tuple[Tensors, dict[str, str]]:
    """The state of a model by clean name, a weight of several names under the first; and the others with that one."""
    found: Tensors = {}
    shared: dict[str, str] = {}
    seen: dict[Any, str] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        same = tensors.same_memory(value) if value.numel() else name
        if same in seen:
            shared[tensors.clean(name)] = seen[same]
        else:
            seen[same] = tensors.clean(name)
            found[tensors.clean(name)] = value.detach()
    return found, shared


def _state_by_name(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Tensors, dict[str, Any]]:
    """Tensors of an optimizer by the names of their weights, and the rest of its state."""
    names = _names(model)
    content: Tensors = {}
    rest: dict[str, dict[str, Any]] = {}
    for weight, entry in optimizer.state.items():
        name = names[id(weight)]
        for key, value in entry.items():
            if isinstance(value, torch.Tensor):
                content[f"{OPTIMIZER}{name}.{key}"] = value.detach()
            else:
                rest.setdefault(name, {})[key] = value
    groups = [
        {**group, "params": [names[id(weight)] for weight in group["params"]]} for group in optimizer.param_groups
    ]
    return content, {"class": type(optimizer).__name__, "state": rest, "param_groups": groups}


def _names(model: nn.Module) -> dict[int, str]:
    return {id(weight): tensors.clean(name) for name, weight in model.named_parameters()}


def _weights(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _empty(weight: torch.Tensor, size: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    if size == weight.shape:
        return torch.zeros_like(weight, dtype=dtype, requires_grad=False)
    return torch.zeros(size, dtype=dtype)


def _rest(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / layout.PARTS / GROUPS
    try:
        return files.read_json(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _found(checkpoint: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """All tensors with the shape and type of the whole."""
    with _told(checkpoint):
        content = _reader(checkpoint).read_metadata().state_dict_metadata
    return {name: (one.size, one.properties.dtype) for name, one in content.items()}


def _read(checkpoint: Path, content: Tensors) -> None:
    """Fills these tensors in place."""
    from torch.distributed.checkpoint import load

    if content:
        with _told(checkpoint), _quietly():
            load(content, storage_reader=_reader(checkpoint), no_dist=True)


def _reader(checkpoint: Path) -> Any:
    from torch.distributed.checkpoint import HuggingFaceStorageReader

    return HuggingFaceStorageReader(str(checkpoint / layout.PARTS))


@contextlib.contextmanager
def _told(checkpoint: Path) -> Iterator[None]:
    """What torch raises for damaged files, as a `CheckpointError`. It wraps errors in an exception of its own."""
    try:
        yield
    except Exception as error:
        words = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        raise CheckpointError(f"The parts in {checkpoint / layout.PARTS} cannot be read: {words[0]}") from error


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """torch mentions that one process reads alone, which is meant, and what it has renamed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.")
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.")
        yield
