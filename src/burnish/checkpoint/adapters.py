"""Adapters of `peft` into a folder and back, with everything else that is trained beside them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from burnish.core import zero_parts
from burnish.core.divided import as_own, divided_like, is_divided
from burnish.core.errors import CheckpointError

from . import layout, pretrained, tensors
from .tensors import Tensors

_PREFIX = "base_model.model."  # before every name in an adapter's file; not in a model that took its adapters in


def names(model: nn.Module) -> list[str]:
    """The adapters of a model, wrapped by `peft` or taken in by transformers; empty where there are none."""
    return list(getattr(model, "peft_config", None) or {})


def save(model: Any, folder: Path, state: Tensors) -> None:
    """Writes the adapters as `peft` does, and beside them the trained weights that it would leave behind."""
    pretrained.save(_with_prompts_of(model, state), folder, state)
    rest = _left_out(model, state)
    if rest:
        tensors.write(rest, folder / layout.TRAINABLE)


def load(model: Any, folder: Path) -> None:
    """Fills the adapters of a model, and what was trained beside them, in place.

    Raises:
        CheckpointError: the folder lacks an adapter, or names or shapes differ from those of the model.
    """
    with zero_parts.gathered(weight for weight in model.parameters() if weight.requires_grad):
        _load(model, folder)


def _load(model: Any, folder: Path) -> None:
    rest_file = folder / layout.TRAINABLE
    rest = tensors.read_file(rest_file) if rest_file.is_file() else {}
    for adapter in names(model):
        place = folder / adapter if (folder / adapter).is_dir() else folder
        if place not in layout.adapter_folders(folder):
            raise CheckpointError(f"{place} holds no {layout.ADAPTER_WEIGHTS[0]} for the adapter {adapter!r}.")
        _load_adapter(model, adapter, place, rest)
    own = {tensors.clean(name): tensor for name, tensor in model.state_dict(keep_vars=True).items()}
    _refuse(folder, missing=[], unknown=[name for name in rest if name not in own])
    with torch.no_grad():
        for name, tensor in rest.items():
            own[name].copy_(as_own(own[name], tensor))


def _load_adapter(model: Any, adapter: str, place: Path, rest: Tensors) -> None:
    import peft

    found = peft.load_peft_weights(str(place), device="cpu")
    divided = next(filter(is_divided, model.parameters()), None)
    if divided is not None:
        found = {name: divided_like(divided, value) for name, value in found.items()}
    shown = _with_prompts_of(model, {name: torch.zeros(value.shape) for name, value in model.state_dict().items()})
    expected = peft.get_peft_model_state_dict(shown, adapter_name=adapter, save_embedding_layers=False)
    known = {_short(name) for name in [*expected, *model.state_dict()]}
    given = {_short(name) for name in found}
    missing = [name for name in map(_short, expected) if name not in given]
    _refuse(place, missing, unknown=[name for name in given if name not in known])
    if _is_computed(model, adapter) and rest:
        return  # the file holds the finished prompt; what it is computed from is among the rest
    try:
        peft.set_peft_model_state_dict(model, found, adapter_name=adapter)
    except RuntimeError as error:
        raise CheckpointError(f"The adapter in {place} does not fit {adapter!r} of the model: {error}") from error


def _refuse(place: Path, missing: list[str], unknown: list[str]) -> None:
    if missing or unknown:
        parts = [f"not in the file: {tensors.listed(missing)}"] if missing else []
        parts += [f"not in the model: {tensors.listed(unknown)}"] if unknown else []
        raise CheckpointError(
            f"The adapter in {place} does not fit the model. {'; '.join(parts)}. Use the adapter settings (type, rank, "
            "target modules, modules to save) of the run that wrote it."
        )


def _short(name: str) -> str:
    return name.removeprefix(_PREFIX)


def _is_computed(model: Any, adapter: str) -> bool:
    """Whether the adapter's file holds a result of trained weights (a prompt made by a network), not the weights."""
    return bool(getattr(model.peft_config[adapter], "is_prompt_learning", False))


def _with_prompts_of(model: Any, state: Tensors) -> Any:
    """The model with a network of its own for prompts, that of `state`: peft computes anew what it writes of them, and
    the weights of the model may lie in parts, or be newer."""
    if not any(_is_computed(model, adapter) for adapter in names(model)):
        return model
    weights = model.prompt_encoder.named_parameters(prefix="prompt_encoder", remove_duplicate=False)
    taken = {id(weight): nn.Parameter(state[name], requires_grad=False) for name, weight in weights}
    twin = pretrained.beside(model)
    twin._modules = {**model._modules, "prompt_encoder": copy.deepcopy(model.prompt_encoder, taken)}
    return twin


def _left_out(model: Any, state: Tensors) -> Tensors:
    """What changes in training but stands in no adapter's file: other trainable weights, and running statistics."""
    import peft

    written: set[tuple[object, ...]] = set()
    for adapter in names(model):
        if not _is_computed(model, adapter):
            part = peft.get_peft_model_state_dict(model, state, adapter, save_embedding_layers=False)
            written.update(map(tensors.same_memory, part.values()))
    moving = {name for name, weight in model.named_parameters(remove_duplicate=False) if weight.requires_grad}
    for owner, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            moving.update(f"{owner}.{name}" for name, _ in module.named_buffers(recurse=False))
    moving = {tensors.clean(name) for name in moving}
    return {
        name: tensor for name, tensor in state.items() if name in moving and tensors.same_memory(tensor) not in written
    }
