"""Gradients of large embedding tables.

The gradient of a table is zero but for the rows that were looked up, and yet torch makes a tensor of the size of the
table for every micro-batch, adds it up, takes its norm and scales it. Here the table has one buffer for the whole run;
a micro-batch adds its rows to it, and norm, clipping and clearing touch these rows alone. What the optimizer sees is
the same dense gradient.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

FEWEST_ELEMENTS = 1 << 20
"""Tables smaller than this are not worth the trouble."""


class EmbeddingTables:
    """The large embedding tables of a model whose gradient comes from look-ups alone.

    A table that is tied to an output layer has a dense gradient, and is left as it is. So is one whose weight is used
    outside of its module, in the steps in which it is: that shows in the gradient that arrives.
    """

    def __init__(self, model: nn.Module) -> None:
        owners = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
        modules = (part for part in model.modules() if isinstance(part, nn.Embedding))
        self.modules = [part for part in modules if _is_large(part) and owners[id(part.weight)] == 1]
        self.weights = frozenset(part.weight for part in self.modules)
        self._buffers: dict[torch.Tensor, torch.Tensor] = {}
        self._looked_up: dict[torch.Tensor, list[torch.Tensor]] = {}
        self._unique: set[torch.Tensor] = set()
        self._dense: set[torch.Tensor] = set()

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Gathers gradients in the buffers inside the context. Afterwards the tables have no gradient."""
        handles: list[Any] = [module.register_forward_hook(self._look_up, with_kwargs=True) for module in self.modules]
        handles += [module.weight.register_hook(partial(self._arrived, module.weight)) for module in self.modules]
        for module in self.modules:
            module.sparse = True
        try:
            yield
        finally:
            for module in self.modules:
                module.sparse, module.weight.grad = False, None
            for handle in handles:
                handle.remove()
            self._buffers.clear()
            self._looked_up.clear()

    def _look_up(
        self, module: nn.Embedding, args: tuple[Any, ...], kwargs: dict[str, Any], output: torch.Tensor
    ) -> None:
        weight = module.weight
        if not torch.is_grad_enabled():
            return
        if weight not in self._buffers:
            self._buffers[weight] = torch.zeros_like(weight)
        if weight.grad is None:
            weight.grad = self._buffers[weight]
        ids = args[0] if args else kwargs["input"]
        self._looked_up.setdefault(weight, []).append(ids.detach().flatten())

    def _arrived(self, weight: torch.Tensor, gradient: torch.Tensor) -> None:
        if not gradient.is_sparse:
            self._dense.add(weight)

    def rows_of(self, weight: torch.Tensor) -> torch.Tensor | None:
        """Numbers of the rows that were looked up in this step, each once; None where more of the gradient is not zero,
        and for what is not such a table."""
        looked_up = self._looked_up.get(weight)
        if looked_up is None or weight in self._dense:
            return None
        if len(looked_up) > 1 or weight not in self._unique:
            self._looked_up[weight] = [torch.cat(looked_up).unique()]
            self._unique.add(weight)
        return self._looked_up[weight][0]

    def scale(self, share: torch.Tensor) -> None:
        """Multiplies the gradients by `share` (0-dimensional)."""
        for weight, buffer in self._buffers.items():
            rows = self.rows_of(weight)
            if rows is not None:
                buffer.index_copy_(0, rows, buffer.index_select(0, rows) * share)

    def clear(self) -> None:
        """Forgets the gradients of the step."""
        for weight, buffer in self._buffers.items():
            rows = self.rows_of(weight)
            if rows is not None:
                buffer.index_fill_(0, rows, 0.0)
            elif weight in self._dense:
                buffer.zero_()
            weight.grad = None
        self._looked_up.clear()
        self._unique.clear()
        self._dense.clear()


def _is_large(module: nn.Embedding) -> bool:
    hooked = bool(module.weight._backward_hooks)  # a user's hook expects the dense gradient
    plain = module.max_norm is None and not module.scale_grad_by_freq and not module.sparse and not hooked
    return plain and module.weight.requires_grad and module.weight.numel() >= FEWEST_ELEMENTS
