"""Counts the bytes of tensors that are alive while a model computes."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .heap import GRAPH_GONE, Ask


@dataclass(frozen=True)
class Peak:
    """The most that was alive at one moment, and how much of it was gradients of weights, in bytes."""

    bytes: float = 0
    gradients: float = 0
    without_gradients: float = 0
    """The most that was alive beside gradients, at whatever moment."""

    def plus(self, other: Peak, times: float = 1.0) -> Peak:
        """Their sum, the other one taken `times`."""
        return Peak(
            self.bytes + other.bytes * times,
            self.gradients + other.gradients * times,
            self.without_gradients + other.without_gradients * times,
        )


class LiveBytes(TorchDispatchMode):
    """Sees each tensor that an operation makes, until its memory is given back.

    What depends on numbers that are not there is answered: so many positions have a target, and a mask hides nothing.

    Args:
        num_targets: positions with a target in a micro-batch.
        weights: tensors that are there all the time; neither they nor their views are counted.
    """

    def __init__(self, num_targets: int, weights: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.num_targets = num_targets
        self._weights = [weight.untyped_storage() for weight in weights]
        self.now = self.gradients = 0
        self.prefix = self.phase = ""
        self.peaks: dict[str, Peak] = {}
        self.asks: list[Ask] = []
        """Tensors that were asked for and given back, in order."""
        self.backward = False
        """Whether a backward pass is on: what is computed again in it is in the graph for a moment only."""
        self._number = 0
        self._alive = {id(storage) for storage in self._weights}

    def enter_phase(self, name: str) -> None:
        self.phase = self.prefix + name
        self._note()

    def forget_graph(self) -> None:
        """The loss of a micro-batch is not held any more."""
        self.asks.append(GRAPH_GONE)

    def gradient_arrived(self, parameter: torch.Tensor) -> None:
        """A weight has its first gradient of the step."""
        assert parameter.grad is not None
        self.gradients += parameter.grad.untyped_storage().nbytes()

    def gradient_freed(self, parameter: torch.Tensor) -> None:
        """A weight has taken its step within the backward pass."""
        assert parameter.grad is not None
        self.gradients -= parameter.grad.untyped_storage().nbytes()
        parameter.grad = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.nonzero.default:
            output = args[0].new_empty((self.num_targets, args[0].dim()), dtype=torch.int64)
        elif func is torch.ops.aten._local_scalar_dense.default:
            return 1
        else:
            output = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor)
        return output

    def _see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        if key in self._alive:
            return
        self._alive.add(key)
        self.now += size
        self._number += 1
        if size:
            self.asks.append(Ask(self._number, size, torch.is_grad_enabled() and not self.backward))
        self._note()
        weakref.finalize(storage, self._gone, key, self._number, size)

    def _gone(self, key: int, number: int, size: int) -> None:
        self._alive.discard(key)
        self.now -= size
        if size:
            self.asks.append(Ask(number, 0))

    def _note(self) -> None:
        peak = self.peaks.get(self.phase, Peak())
        beside = max(peak.without_gradients, self.now - self.gradients)
        if self.now > peak.bytes:
            peak = Peak(self.now, self.gradients, beside)
        elif beside > peak.without_gradients:
            peak = replace(peak, without_gradients=beside)
        self.peaks[self.phase] = peak


class AsOnAccelerator(TorchFunctionMode):
    """Attention with dropout in a flash kernel, and dropout with a mask of one byte an element: what CUDA does, where
    the CPU writes out attention weights and float masks."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.nn.functional.scaled_dot_product_attention:
            kwargs["dropout_p"] = 0.0
            args = args[:4]
        if func is torch.nn.functional.dropout:
            p, training = kwargs.get("p", 0.5), kwargs.get("training", True)
            p, training = (args[1] if len(args) > 1 else p), (args[2] if len(args) > 2 else training)
            return torch.native_dropout(args[0], p, True)[0] if training and p else args[0]
        return func(*args, **kwargs)
