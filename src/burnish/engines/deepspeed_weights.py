"""Whole weights out of what ZeRO divides among the processes, and a plain model out of one that it has taken over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from burnish.core import zero_parts
from burnish.core.errors import UserError

TRACES = (
    *("all_parameters", "_original_parameters", "_external_params"),
    *("pre_bwd_fn", "post_bwd_fn", "applied_pre_backward_ref_cnt"),
)
"""Attributes that ZeRO gives to modules, besides those that begin with `ds_`."""

HALF = (torch.bfloat16, torch.float16)

_ENGINE = "_deepspeed_engine"
"""Where a model keeps the engine that it is in: in its `__dict__`."""


def take_over(model: nn.Module, engine: Any) -> None:
    """Notes which engine a model is in, and takes it out of another one: of two, each would gather its weights.

    Raises:
        UserError: the other one is in the middle of a run.
    """
    other = vars(model).get(_ENGINE)
    if other is not None and other.is_updating:
        raise UserError(
            f"{type(model).__name__} lies in parts in a training that is not over. Evaluate with that trainer, or "
            "train with this one when the other one has ended."
        )
    if other is not None:
        other.finished()
    vars(model)[_ENGINE] = engine


def let_go(model: nn.Module) -> None:
    vars(model).pop(_ENGINE, None)


def head_of(model: nn.Module) -> nn.Module:
    """The part of a language model that makes logits of hidden states; without any parameter where there is none."""
    find = getattr(model, "get_output_embeddings", None)
    layer = find() if callable(find) else None
    holders = [
        part
        for module in model.modules()
        if layer is not None and callable(find := getattr(module, "get_output_embeddings", None)) and find() is layer
        for part in module.children()
        if any(inner is layer for inner in part.modules())
    ]
    return holders[-1] if holders else nn.Identity()  # the innermost model, without wrappers of adapters


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
    from deepspeed.utils import safe_get_full_fp32_param

    if in_full and parameter.dtype in HALF and parameter.requires_grad:
        full = safe_get_full_fp32_param(parameter)
        if full is not None:
            return full
    return zero_parts.whole(parameter) if zero_parts.is_part(parameter) else parameter.detach()


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
        self.came_divided = zero_parts.lies_in_parts(self.model)

    def compute_in(self, dtype: torch.dtype) -> None:
        """Gives weights that lie in parts the type that they are to be computed with."""
        for parameter in self.model.parameters():
            if zero_parts.is_part(parameter) and parameter.is_floating_point():
                zero_parts.become(parameter, dtype)

    def stay_divided(self, in_full: bool) -> None:
        """Leaves a model that came in parts so, once a run is over. All processes take part.

        Args:
            in_full: with weights in the 32 bits that were updated, in place of those that were computed with.
        """
        zero_parts.put_away(self.model)
        for parameter in self.model.parameters():
            parameter.grad = None
            if in_full and zero_parts.is_part(parameter) and parameter.dtype in HALF:
                zero_parts.become(parameter, torch.float32, whole(parameter, in_full=True))

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
        self.without_traces()
        for parameter, value in values:
            parameter.grad = None
            parameter.data = value

    def without_traces(self) -> None:
        """Takes away what ZeRO has given to parameters and modules since; what holds parts together stays."""
        of_parts = set().union(*(own for own, _ in self.parameters.values() if "ds_id" in own))
        for name, parameter in self.model.named_parameters():
            own = self.parameters[name][0]
            if self.came_divided and zero_parts.is_part(parameter):
                parameter.ds_persist = False  # type: ignore[attr-defined]
                own = own | of_parts
            for attribute in set(vars(parameter)) - own:
                delattr(parameter, attribute)
        for name, module in self.model.named_modules():
            for attribute in set(vars(module)) - self.modules.get(name, set()):
                if attribute.startswith("ds_") or attribute in TRACES:
                    delattr(module, attribute)
            if type(module._parameters) is not dict:
                module._parameters = dict(module._parameters)
        for name, buffer in self.model.named_buffers():
            if name in self.buffers:
                buffer.data = buffer.data.to(self.buffers[name])
