"""Updates of large embedding tables by AdamW, of the rows that can move.

A row that was never looked up has a gradient and moments of zero, and without weight decay AdamW leaves it where it is:
its update is 0 / (0 + eps). So the other rows alone are read and written. Weights, moments and the form of the state
are those of the update of a whole table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import AdamW, Optimizer
from torch.optim.adamw import adamw

from .tables import EmbeddingTables

LARGEST_SHARE = 0.2
"""Of the rows of a table; with more of them it is cheaper to update the whole table than to gather and scatter them."""


CHUNK_ELEMENTS = 1 << 16
"""Of the rows that are updated at once: 256 KiB in float32."""


class RowUpdates:
    """Takes the tables out of the steps of an optimizer, and updates their rows that can move."""

    def __init__(self, tables: EmbeddingTables) -> None:
        self.tables = tables
        self._can_move: dict[torch.Tensor, torch.Tensor] = {}
        """By table, whether each row has or had a gradient (rows,)."""
        self._gradients: dict[torch.Tensor, torch.Tensor | None] = {}

    @contextlib.contextmanager
    def on(self, optimizer: Optimizer) -> Iterator[None]:
        """Inside the context. Optimizers other than torch's AdamW are left alone."""
        if type(optimizer) is not AdamW:
            yield
            return
        handles = [optimizer.register_step_pre_hook(self._before), optimizer.register_step_post_hook(self._after)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._can_move.clear()

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            if group["weight_decay"] or group["amsgrad"] or group["maximize"] or group["differentiable"]:
                continue
            for weight in self.tables.weights.intersection(group["params"]):
                rows = self._rows(weight, optimizer.state.get(weight))
                if rows is not None:
                    _update(weight, rows, optimizer.state[weight], group)
                    self._gradients[weight], weight.grad = weight.grad, None

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for weight, gradient in self._gradients.items():
            weight.grad = gradient
        self._gradients.clear()

    def _rows(self, weight: torch.Tensor, state: dict[str, torch.Tensor] | None) -> torch.Tensor | None:
        """Numbers of the rows that can move; None where the whole table is to be updated: at the first step, which
        makes the moments, with a gradient that may be anywhere, and where most rows can move."""
        looked_up = self.tables.rows_of(weight)
        if looked_up is None or not state:
            self._can_move.pop(weight, None)
            return None
        if weight not in self._can_move:
            self._can_move[weight] = (state["exp_avg"] != 0).any(1) | (state["exp_avg_sq"] != 0).any(1)
        can_move = self._can_move[weight]
        can_move[looked_up] = True
        rows = can_move.nonzero().squeeze(1)
        return rows if len(rows) <= LARGEST_SHARE * len(can_move) else None


def _update(weight: torch.Tensor, rows: torch.Tensor, state: dict[str, torch.Tensor], group: dict[str, Any]) -> None:
    """One step of AdamW (Loshchilov & Hutter, 2019, arXiv 1711.05101) for some rows of a table, by torch's own code.

    A few rows at a time go through buffers that stay in the cache: new memory of their size would cost more than this.
    """
    assert weight.grad is not None
    whole = (weight.grad, weight.detach(), state["exp_avg"], state["exp_avg_sq"])
    buffers = weight.new_empty(len(whole), min(len(rows), max(1, CHUNK_ELEMENTS // weight.shape[1])), weight.shape[1])
    beta1, beta2 = group["betas"]
    for some in rows.split(buffers.shape[1]):
        gradient, *parts = buffers[:, : len(some)]
        for tensor, part in zip(whole, (gradient, *parts), strict=True):
            torch.index_select(tensor, 0, some, out=part)
        adamw(
            parts[:1], [gradient], parts[1:2], parts[2:], [], [state["step"].clone()],
            foreach=False, fused=bool(group["fused"]), amsgrad=False, maximize=False, weight_decay=0.0,
            beta1=beta1, beta2=beta2, lr=group["lr"], eps=group["eps"],
        )  # fmt: skip
        for tensor, part in zip(whole[1:], parts, strict=True):
            tensor.index_copy_(0, some, part)
    state["step"] += 1
