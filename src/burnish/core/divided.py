"""Models whose weights lie in parts on the processes of a run, as torch's DTensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from . import zero_parts

_DIVISION = "_division"
"""Where a model keeps its `Division`: in its `__dict__`, since the module in it holds the model."""


@dataclass(frozen=True)
class Division:
    """How a model was divided."""

    outer: nn.Module
    """What is called in place of the model: it gathers weights for what is computed inside."""
    computed_in: torch.dtype | None
    """The type that weights have while they are computed with; None for their own."""


def divide(model: nn.Module, division: Division) -> None:
    """Takes down how a model was divided."""
    vars(model)[_DIVISION] = division


def division_of(model: nn.Module) -> Division | None:
    """How a model was divided; None for one that is whole."""
    found: Division | None = vars(model).get(_DIVISION)
    return found


def is_divided(tensor: Any) -> bool:
    """Whether this process holds only a part of a tensor."""
    return isinstance(tensor, torch.Tensor) and hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")


def put_away(model: nn.Module) -> None:
    """Gives back weights that were gathered: a forward pass without a backward pass leaves some whole, as they are now,
    whatever becomes of the parts."""
    if division_of(model) is None:
        return
    for module in model.modules():
        reshard = getattr(module, "reshard", None)
        if callable(reshard):
            reshard()


@torch.no_grad()
def whole(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """All of a tensor that may be divided, on this device. All processes take part."""
    if zero_parts.is_part(tensor):
        return zero_parts.whole(tensor).to(device)
    if not is_divided(tensor):
        return tensor.detach()
    local = tensor.to_local().to(device)  # type: ignore[attr-defined]  # offloaded parts: a GPU's processes gather on it
    return _like(tensor, local, tensor).full_tensor().detach()  # type: ignore[no-any-return]


def as_own(own: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """A whole tensor, divided as `own` of the same shape is: a copy of this process's part. `found` itself where `own`
    is whole. Nothing is said between processes."""
    if not is_divided(own) or is_divided(found) or found.shape != own.shape:
        return found
    return divided_like(own, found)


def divided_like(own: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """A whole tensor of any shape, divided in the way in which `own` is: a copy of this process's part."""
    local = part_of(own, found).to(own.to_local().device, copy=True)  # type: ignore[attr-defined]
    return _like(own, local, found)  # type: ignore[no-any-return]


def part_of(own: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Of a whole tensor, the part that this process holds of `own`."""
    mesh, placements = own.device_mesh, own.placements  # type: ignore[attr-defined]
    for dim, placement in enumerate(placements):
        if placement.is_replicate():
            continue
        parts = torch.chunk(found, mesh.size(dim), dim=placement.dim)
        number = mesh.get_local_rank(dim)
        found = parts[number] if number < len(parts) else found.narrow(placement.dim, 0, 0)
    return found


def offsets_of(own: torch.Tensor) -> list[int]:
    """Where the part that this process holds of a tensor begins in the whole, in each dimension."""
    offsets, sizes = [0] * own.ndim, list(own.shape)
    if is_divided(own):
        mesh, placements = own.device_mesh, own.placements  # type: ignore[attr-defined]
        for dim, placement in enumerate(placements):
            if not placement.is_replicate():
                whole_size, along = sizes[placement.dim], placement.dim
                most = -(-whole_size // mesh.size(dim))  # as torch.chunk cuts
                begin = min(most * mesh.get_local_rank(dim), whole_size)
                offsets[along] += begin
                sizes[along] = min(most, whole_size - begin)
    return offsets


def copy_of(own: torch.Tensor) -> tuple[int, int]:
    """Which one of the equal copies of its part this process holds, and how many there are among the processes that
    divide the tensor."""
    number, count = 0, 1
    mesh, placements = own.device_mesh, own.placements  # type: ignore[attr-defined]
    for dim, placement in enumerate(placements):
        if placement.is_replicate():
            number, count = number * mesh.size(dim) + mesh.get_local_rank(dim), count * mesh.size(dim)
    return number, count


def mapped(content: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same nesting of dicts, lists and tuples with each tensor changed."""
    if isinstance(content, torch.Tensor):
        return change(content)
    if isinstance(content, dict):
        return {key: mapped(value, change) for key, value in content.items()}
    if type(content) in (list, tuple):
        return type(content)(mapped(value, change) for value in content)
    return content


def _like(own: torch.Tensor, local: torch.Tensor, of: torch.Tensor) -> Any:
    """The part `local` of a tensor with the shape of `of`, divided as `own`."""
    from torch.distributed.tensor import DTensor

    mesh, placements = own.device_mesh, own.placements  # type: ignore[attr-defined]
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=of.shape, stride=of.stride())


def class_of(model: nn.Module) -> type[nn.Module]:
    """The class that a model was built of: torch gives one that it divides a class of its own."""
    return next(kind for kind in type(model).__mro__ if not kind.__module__.startswith("torch.distributed."))


def base_of(model: nn.Module) -> nn.Module:
    """The model that an adapters' wrapper holds, or the model itself."""
    get = getattr(model, "get_base_model", None)
    base: nn.Module = get() if callable(get) else model
    return base
