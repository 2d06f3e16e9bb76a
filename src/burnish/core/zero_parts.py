"""Weights that lie in parts on the processes of a run, as DeepSpeed's ZeRO-3 keeps them.

Such a parameter has no numbers (shape ``(0,)``) but while it is computed with. It knows the shape of the whole, and
holds this process's piece of the numbers in a row. DeepSpeed gives it what gathers it and takes it apart again.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

_LOADING = "transformers.integrations.deepspeed"


def is_part(tensor: Any) -> bool:
    """Whether a parameter lies in parts."""
    return hasattr(tensor, "ds_id")


def lies_in_parts(model: nn.Module) -> bool:
    """Whether a model has such parameters."""
    return any(map(is_part, model.parameters()))


def shape_of(tensor: Any) -> torch.Size:
    """The shape of the whole."""
    return torch.Size(tensor.ds_shape) if is_part(tensor) else tensor.shape


def num_elements(tensor: Any) -> int:
    """Numbers of the whole."""
    return int(tensor.ds_numel) if is_part(tensor) else tensor.numel()


@contextlib.contextmanager
def without_new_names() -> Iterator[None]:
    """torch has renamed what DeepSpeed calls, and says so at each place."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.distributed\..* is deprecated", FutureWarning)
        yield


@torch.no_grad()
def whole(parameter: Any) -> torch.Tensor:
    """A copy of the whole. All processes take part."""
    with without_new_names():
        parameter.all_gather()
    value: torch.Tensor = parameter.detach().clone()
    parameter.partition()
    return value


@torch.no_grad()
def fill(parameter: Any, value: torch.Tensor) -> None:
    """Gives a parameter the numbers of a whole tensor, the same on all processes, which take part; or of a parameter
    that lies in parts like it. The type of the numbers is the more precise one of both."""
    if is_part(value):
        value = whole(value)
    if value.is_floating_point() and value.element_size() > parameter.element_size():
        become(parameter, value.dtype)
    with without_new_names():
        parameter.all_gather()
    parameter.data.copy_(value)
    parameter.partition(has_been_updated=True)


@contextlib.contextmanager
def gathered(parameters: Iterable[Any]) -> Iterator[None]:
    """Those that lie in parts are whole inside the context, and may be changed there, in the same way on all
    processes. All take part."""
    parts = [parameter for parameter in parameters if is_part(parameter)]
    with without_new_names():
        for parameter in parts:
            parameter.all_gather()
    try:
        yield
    finally:
        for parameter in parts:
            parameter.partition(has_been_updated=True)


@torch.no_grad()
def put_away(model: nn.Module) -> None:
    """Gives back the small weights that DeepSpeed keeps whole between two steps."""
    parameters: Any = model.parameters()
    for parameter in parameters:
        if is_part(parameter) and parameter.numel() > 0:
            parameter.partition()


@torch.no_grad()
def become(parameter: Any, dtype: torch.dtype, value: torch.Tensor | None = None) -> None:
    """Gives a parameter another type of numbers, and the numbers of `value` (whole) where it is given."""
    piece = parameter.ds_tensor
    if piece.dtype != dtype and piece.numel() > 0:  # nothing is here of what lies on a disk
        renewed = piece.to(dtype)
        for name, known in vars(piece).items():
            setattr(renewed, name, known)
        parameter.ds_tensor = renewed
        parameter.data = torch.empty(0, dtype=dtype, device=parameter.device)
    if value is not None:
        fill(parameter, value)


@contextlib.contextmanager
def loaded_whole() -> Iterator[None]:
    """Models that transformers loads inside the context are whole, whatever its settings of DeepSpeed say."""
    theirs: Any = sys.modules.get(_LOADING)
    held = None if theirs is None else theirs._hf_deepspeed_config_weak_ref
    if held is None:
        yield
        return
    theirs.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        theirs._hf_deepspeed_config_weak_ref = held
