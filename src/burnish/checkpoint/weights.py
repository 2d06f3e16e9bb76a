"""The weights of a model into a folder and back, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from burnish.core import zero_parts
from burnish.core.divided import as_own, class_of, put_away
from burnish.core.errors import CheckpointError
from burnish.core.zero_parts import is_part, shape_of

from . import adapters, in_use, layout, parts, pretrained, shared, tensors
from .tensors import Tensors


def save_weights(model: nn.Module, folder: Path | str, *, state: Tensors | None = None) -> None:
    """Writes a model so that ``from_pretrained(folder)`` builds it again: weights, config, generation config.

    A model of transformers or peft writes itself; any other module becomes one ``model.safetensors``. Adapters are
    written without the model below them. The model, its config and its adapters' configs are left as they were.

    Args:
        model: may be wrapped by ``torch.compile`` or ``DistributedDataParallel``.
        state: the tensors to write, under the names of the model's ``state_dict()``: copies taken at an earlier
            moment. The model's own where it is not given.

    Raises:
        CheckpointError: the model's state cannot be written as tensors.
        OSError, safetensors.SafetensorError: a file cannot be written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model = tensors.unwrapped(model)
    state = tensors.tensors_of(model) if state is None else {tensors.clean(name): t for name, t in state.items()}
    if adapters.names(model):
        adapters.save(model, folder, state)
    elif pretrained.is_pretrained(model):
        pretrained.save(model, folder, shared.standing_apart(model, state))
    else:
        tensors.write(state, folder / layout.WEIGHTS)


def load_weights(model: nn.Module, folder: Path | str) -> None:
    """Fills an existing model with the weights of a folder. Its parameters stay the same objects, so an optimizer
    that holds them stays valid, and weights that are tied stay tied.

    Raises:
        CheckpointError: names or shapes differ from those of the model (it says which), or a file is damaged.
    """
    with in_use.held(folder):
        _load(tensors.unwrapped(model), Path(folder))


def _load(model: nn.Module, folder: Path) -> None:
    put_away(model)
    if parts.are_in(folder) and not layout.holds_weights(folder):
        mismatch = compare(model.state_dict(keep_vars=True), parts.weight_shapes(folder))
        if any(mismatch):
            raise CheckpointError(mismatch.told(folder, model))
        parts.load_weights(model, folder)
        return
    if adapters.names(model):
        adapters.load(model, folder)
        return
    if layout.adapter_folders(folder) and not any(
        (folder / n).exists() for n in (layout.WEIGHTS, layout.WEIGHTS_INDEX)
    ):
        raise CheckpointError(
            f"{folder} holds adapters, and {type(model).__name__} has none. Build the model with `peft` as in the run "
            "that wrote them."
        )
    found = tensors.read(folder)
    mismatch = compare(model.state_dict(keep_vars=True), {name: tensor.shape for name, tensor in found.items()})
    if any(mismatch):
        renamed = pretrained.rebuilt(model, folder) if pretrained.is_pretrained(model) else None
        if renamed is None:
            raise CheckpointError(mismatch.told(folder, model))
        found = renamed
    fill(model, found)


class Mismatch(NamedTuple):
    """Names of weights: in the model only, in the file only, and of another shape."""

    missing: list[str]
    unknown: list[str]
    reshaped: list[str]

    def told(self, folder: Path, model: nn.Module) -> str:
        told = [
            f"{len(names)} {what}: {tensors.listed(names)}"
            for names, what in zip(self, ("not in the file", "not in the model", "of another shape"), strict=True)
            if names
        ]
        return (
            f"The weights in {folder} do not fit {class_of(model).__name__}. {'. '.join(told)}. Build the model as in "
            "the run that wrote them (same class, config and number of labels)."
        )


def compare(own: Mapping[str, torch.Tensor], found: Mapping[str, torch.Size]) -> Mismatch:
    """Compares a model's state with the shapes of the weights in a file, under clean names. A name that is not in the
    file isn't missing where the model ties it to one that is."""
    own = {tensors.clean(name): tensor for name, tensor in own.items()}
    filled = {tensors.same_memory(tensor) for name, tensor in own.items() if name in found}
    both = own.keys() & found.keys()
    return Mismatch(
        missing=[name for name in own if name not in found and tensors.same_memory(own[name]) not in filled],
        unknown=[name for name in found if name not in own],
        reshaped=[
            f"{name} {_change(found[name], shape)}"
            for name, shape in ((name, shape_of(own[name])) for name in both)
            if found[name] != shape
        ],
    )


def _change(found: torch.Size, own: torch.Size) -> str:
    return f"({tuple(found)} in the file, {tuple(own)} in the model)"


def fill(model: nn.Module, found: Mapping[str, torch.Tensor]) -> None:
    """Copies tensors into those of the model that have their (clean) names."""
    own = model.state_dict(keep_vars=True)
    known = {name: found[tensors.clean(name)] for name in own if tensors.clean(name) in found}
    in_parts = {id(own[name]): (own[name], value) for name, value in known.items() if is_part(own[name])}
    for parameter, value in in_parts.values():
        zero_parts.fill(parameter, value)
    state = {name: as_own(own[name], value) for name, value in known.items() if not is_part(own[name])}
    model.load_state_dict(state, strict=False)
