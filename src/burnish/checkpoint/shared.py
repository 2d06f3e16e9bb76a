"""Weights that lie in the same memory, in models of transformers.

``save_pretrained`` writes a weight once where the model's class ties its names by itself when it is built, and refuses,
or loses a name, where they came to share memory in another way. Those names are written each, so that
``from_pretrained`` finds all of them; loaded into a model that shares them, they are shared still.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from .tensors import Tensors, same_memory


def standing_apart(model: nn.Module, state: Tensors) -> Tensors:
    """`state` with a copy of its own for each tensor whose memory another one has as well, unless a model that is built
    of the same class and config ties the two by itself."""
    if not hasattr(model, "all_tied_weights_keys"):  # of transformers 4, which has no such list for an instance
        return state
    tied: Mapping[str, str] = model.all_tied_weights_keys or {}  # type: ignore[assignment]
    apart, seen = dict(state), set()
    for name, tensor in state.items():
        if not _has_memory(tensor) or _is_tied(name, tied, state):
            continue
        memory = (tensor.device, tensor.untyped_storage().data_ptr())
        if memory in seen or not tensor.is_contiguous():
            apart[name] = tensor.detach().clone(memory_format=torch.contiguous_format)
        seen.add(memory)
    return apart


def _is_tied(name: str, tied: Mapping[str, str], state: Tensors) -> bool:
    source = state.get(tied.get(name, ""))
    return source is not None and same_memory(source) == same_memory(state[name])


def _has_memory(tensor: torch.Tensor) -> bool:
    plain = type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout == torch.strided
    return plain and tensor.device.type != "meta" and tensor.numel() > 0
