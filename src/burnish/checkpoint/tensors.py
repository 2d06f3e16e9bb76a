"""Tensors of a model by name, on their way into a file and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import nn

from burnish.core.divided import is_divided
from burnish.core.errors import CheckpointError
from burnish.core.zero_parts import is_part

from . import files, layout

Tensors = dict[str, torch.Tensor]


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside the wrappers of ``torch.compile`` and ``DistributedDataParallel``."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def clean(name: str) -> str:
    """A weight's name without the marks that compiled submodules leave in it."""
    return name.replace("_orig_mod.", "")


def tensors_of(model: nn.Module) -> Tensors:
    """The state of a model by clean name; shared tensors appear under each of their names.

    Raises:
        CheckpointError: a module keeps a state that is no tensor, which a file of weights cannot hold.
    """
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise CheckpointError(
                f"{name!r} in the state of {type(model).__name__} is a {type(value).__name__}, and a file of weights "
                "holds tensors only. Let its module keep that state as a buffer."
            )
    return {clean(name): value for name, value in state.items()}


def same_memory(tensor: torch.Tensor) -> tuple[object, ...]:
    """Equal for two tensors that are one and the same weight."""
    if is_part(tensor):
        return (tensor.ds_id,)  # type: ignore[attr-defined]
    if is_divided(tensor):
        local: torch.Tensor = tensor.to_local()  # type: ignore[attr-defined]
        return local.device, local.untyped_storage().data_ptr(), tensor.dtype, tuple(tensor.shape)
    return tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def write(tensors: Mapping[str, torch.Tensor], path: Path, said: Mapping[str, str] | None = None) -> None:
    """Writes each weight once. Of names that share a weight the first is kept; the file's metadata say for each other
    name which that was (as ``safetensors.torch.load_model`` expects it), and what is `said` besides."""
    from safetensors.torch import save_file

    kept: Tensors = {}
    metadata = {"format": "pt", **(said or {})}
    names: dict[tuple[object, ...], str] = {}
    for name, tensor in tensors.items():
        first = names.setdefault(same_memory(tensor), name) if tensor.numel() else name
        if first == name:
            kept[name] = _standing_alone(tensor.detach())
        else:
            metadata[name] = first
    save_file(kept, path, metadata=metadata)


def _standing_alone(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous, and not a window on a larger tensor, which the format cannot express."""
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor.contiguous() if whole else tensor.clone(memory_format=torch.contiguous_format)


def read(folder: Path) -> Tensors:
    """All weights of a folder, from one file or from shards, on the CPU, with those names that share a weight.

    Raises:
        CheckpointError: there are none, or a file is missing or damaged.
    """
    found: Tensors = {}
    for path in layout.weight_files(folder):
        found.update(read_file(path))
    return found


def read_file(path: Path) -> Tensors:
    if path.suffix != ".safetensors":
        loaded: Tensors = files.load_tensors(path)
        return loaded
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            found: Tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            for name, first in (file.metadata() or {}).items():
                if first in found:
                    found.setdefault(name, found[first])
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    return found


def listed(names: Iterable[str], most: int = 5) -> str:
    """Names for a message, the first few of them."""
    names = sorted(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
