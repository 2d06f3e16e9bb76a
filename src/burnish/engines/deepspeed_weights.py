"""Whole weights out of what ZeRO divides among the processes, and a plain model out of one that it has taken over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

TRACES = ("all_parameters", "_original_parameters")
"""Attributes that ZeRO gives to modules, besides those that begin with `ds_`."""


def named_wholes(
    model: nn.Module, in_full: bool, only: frozenset[str] | None = None
) -> Iterator[tuple[str, torch.Tensor]]:
    """Each parameter by name, whole, one after the other, so that one alone takes memory. All processes take part.

    Args:
        in_full: of parameters that are computed with in 16 bits, the 32-bit ones that are updated.
        only: these names alone.
    """
    for name, parameter in model.named_parameters():
        if only is None or name in only:
            yield name, whole(parameter, in_full)


@torch.no_grad()
def whole(parameter: nn.Parameter, in_full: bool) -> torch.Tensor:
    """One parameter, as `named_wholes` gives them. May be the parameter itself."""
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param

    is_half = parameter.dtype in (torch.bfloat16, torch.float16)
    if in_full and is_half and parameter.requires_grad:
        full = safe_get_full_fp32_param(parameter)
        if full is not None:
            return full
    if not is_divided(parameter):
        return parameter.detach()
    with deepspeed.zero.GatheredParameters([parameter]):
        return parameter.detach().clone()


def is_divided(parameter: nn.Parameter) -> bool:
    """Whether ZeRO-3 keeps this parameter in parts."""
    return hasattr(parameter, "ds_id")


@dataclass
class Untouched:
    """What a model is like before DeepSpeed takes it over, to be put back."""

    model: nn.Module
    parameters: dict[str, tuple[set[str], torch.dtype]] = field(init=False)
    modules: dict[str, set[str]] = field(init=False)
    buffers: dict[str, torch.dtype] = field(init=False)
    came_divided: bool = field(init=False)
    """Whether the model was loaded in parts, because a process cannot hold it whole."""

    def __post_init__(self) -> None:
        named = dict(self.model.named_parameters())
        self.parameters = {name: (set(vars(weight)), weight.dtype) for name, weight in named.items()}
        self.modules = {name: set(vars(module)) for name, module in self.model.named_modules()}
        self.buffers = {name: buffer.dtype for name, buffer in self.model.named_buffers()}
        self.came_divided = any(map(is_divided, named.values()))

    def put_back(self, keep_types: bool) -> list[tuple[nn.Parameter, torch.Tensor]]:
        """Whole parameters to be given to the model by `plain`, once DeepSpeed has let go of it. All processes take
        part.

        Args:
            keep_types: leave weights in the type that they were computed with.
        """
        found = []
        for name, parameter in self.model.named_parameters():
            value = whole(parameter, in_full=not keep_types)
            dtype = parameter.dtype if keep_types else self.parameters[name][1]
            found.append((parameter, value.to(dtype=dtype, copy=True)))
        return found

    def plain(self, values: list[tuple[nn.Parameter, torch.Tensor]]) -> None:
        """The same parameter objects with these values, and no trace of ZeRO."""
        before = {id(parameter): self.parameters[name][0] for name, parameter in self.model.named_parameters()}
        for parameter, value in values:
            for name in set(vars(parameter)) - before[id(parameter)]:
                delattr(parameter, name)
            parameter.grad = None
            parameter.data = value
        for name, module in self.model.named_modules():
            for attribute in set(vars(module)) - self.modules.get(name, set()):
                if attribute.startswith("ds_") or attribute in TRACES:
                    delattr(module, attribute)
            if type(module._parameters) is not dict:
                module._parameters = dict(module._parameters)
        for name, buffer in self.model.named_buffers():
            if name in self.buffers:
                buffer.data = buffer.data.to(self.buffers[name])
