"""Weights and optimizer states on their way into the parts of a divided model, and out of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from burnish.core.divided import as_own, is_divided, mapped, put_away, whole
from burnish.core.errors import SettingError
from burnish.core.protocols import Processes


def refuse_unlike(model: nn.Module, processes: Processes) -> None:
    """Raises `SettingError` where the model of another process has other weights: sums would go astray."""
    own = [
        (name, tuple(weight.shape), str(weight.dtype), "trained" if weight.requires_grad else "frozen")
        for name, weight in model.named_parameters()
    ]
    first = processes.from_first(lambda: own)
    unlike = next((one for one, other in zip(own, first, strict=False) if one != other), None)
    answers = processes.all_of(None if own == first else (unlike or f"{len(own)} weights, not {len(first)}"))
    for index, answer in enumerate(answers):
        if answer is not None:
            raise SettingError(
                f"The model of process {index} is another one than that of process 0: {answer}. Every process must "
                "build the same model."
            )


@torch.no_grad()
def from_first(module: nn.Module, device: torch.device) -> None:
    """Moves what is not divided yet to the device, and gives it the values of the first process. What has no memory
    there (meta) gets some."""
    moved: dict[int, Any] = {}
    for part in module.modules():
        for name, weight in part._parameters.items():
            if weight is not None and not is_divided(weight):
                if id(weight) not in moved:
                    placed = _placed(weight, device)
                    same = nn.Parameter(placed, weight.requires_grad) if weight.is_meta else weight
                    same.data = placed
                    moved[id(weight)] = same
                part._parameters[name] = moved[id(weight)]
        for name, buffer in part._buffers.items():
            if buffer is not None:
                if id(buffer) not in moved:
                    moved[id(buffer)] = _placed(buffer, device)
                part._buffers[name] = moved[id(buffer)]


def _placed(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    data = torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.detach().to(device)
    data = data.contiguous()
    if data.numel():
        dist.broadcast(data, 0)
    return data


class Following:
    """An optimizer whose weights become other objects, one block after the other: it must not hold the whole ones any
    longer than that.

    Args:
        optimizer: None where there is none yet.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        self.model, self.optimizer = model, optimizer
        names = {id(weight): name for name, weight in model.named_parameters()}
        groups = [] if optimizer is None else optimizer.param_groups
        self._left = {
            names[id(weight)]: (group["params"], place)
            for group in groups
            for place, weight in enumerate(group["params"])
        }

    def on(self) -> None:
        """Takes the new objects for the weights that are divided by now, and divides their states."""
        if self.optimizer is None:
            return
        for name, weight in self.model.named_parameters():
            if not is_divided(weight) or name not in self._left:
                continue
            params, place = self._left.pop(name)
            state = self.optimizer.state.pop(params[place], None)
            params[place] = weight
            if state is not None:
                self.optimizer.state[weight] = mapped(state, _divided_as(weight))


def _divided_as(weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda value: as_own(weight, value)


def gathered(model: nn.Module, device: torch.device, is_first: bool) -> dict[str, torch.Tensor] | None:
    """The model's state by name, whole, on the CPU of the first process: one tensor after the other, so that one alone
    takes memory on the device. None on the other processes, which take part.

    Of a model with adapters only what may be written: these, other weights that are trained, and the embeddings.
    """
    put_away(model)
    state = model.state_dict(keep_vars=True)
    wanted = _written(model)
    found: dict[str, torch.Tensor] = {}
    made: dict[int, torch.Tensor] = {}
    for name, value in state.items():
        if wanted is not None and id(value) not in wanted:
            continue
        if id(value) not in made:
            full = whole(value, device)
            made[id(value)] = full.to("cpu", copy=True) if is_first else full.new_empty(0)
            del full
        found[name] = made[id(value)]
    return found if is_first else None


def _written(model: nn.Module) -> set[int] | None:
    """Identities of what is written of a model; None for all."""
    adapters = set(getattr(model, "peft_config", None) or ())
    if not adapters:
        return None
    kept = set(map(id, model.buffers()))
    for name, weight in model.named_parameters(remove_duplicate=False):
        if weight.requires_grad or not adapters.isdisjoint(name.split(".")):  # those of one that rests are frozen
            kept.add(id(weight))
    for get in ("get_input_embeddings", "get_output_embeddings"):
        layer = getattr(model, get, lambda: None)()
        if isinstance(layer, nn.Module):
            kept.update(map(id, layer.parameters()))
    return kept


def gathered_state(optimizer: torch.optim.Optimizer, device: torch.device, is_first: bool) -> dict[str, Any] | None:
    """An optimizer's ``state_dict()`` with whole tensors, on the CPU of the first process; None on the others, which
    take part."""

    def gather(value: torch.Tensor) -> torch.Tensor:
        full = whole(value, device)
        return full.to("cpu", copy=True) if is_first else full.new_empty(0)

    state = mapped(optimizer.state_dict(), gather)
    return state if is_first else None
