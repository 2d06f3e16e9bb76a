"""Counting what a collated batch holds, on the host, before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from burnish.core.types import IGNORED_LABEL, Counts, Inputs


def num_rows(inputs: Any) -> int:
    """The size of the first axis of the first tensor found; 0 where there is none."""
    if isinstance(inputs, torch.Tensor):
        return int(inputs.shape[0]) if inputs.dim() else 0
    values = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, (list, tuple)) else ()
    return next((found for found in map(num_rows, values) if found), 0)


@dataclass(frozen=True)
class LabelCounter:
    """Counts rows and labels of a batch.

    Args:
        label_names: the inputs that hold targets; the first that is there with whole numbers is counted.
    """

    label_names: tuple[str, ...] = ("labels",)

    def __call__(self, inputs: Inputs) -> Counts:
        rows = num_rows(inputs)
        if not isinstance(inputs, Mapping):
            return Counts(rows, rows, rows)  # a batch of another shape, for methods of the user's own
        spans = _span_targets(inputs) if "start_positions" in self.label_names else None
        if spans is not None:
            return Counts(rows, spans, spans)
        labels = self._labels(inputs)
        if labels is None:
            return Counts(rows, rows, rows)
        carries_loss = labels.ne(IGNORED_LABEL)
        following = carries_loss[..., 1:] if labels.dim() > 1 else carries_loss
        return Counts(rows, int(carries_loss.count_nonzero()), int(following.count_nonzero()))

    def _labels(self, inputs: Inputs) -> torch.Tensor | None:
        """Whole-number labels of the first input that has them."""
        shifted = inputs.get("shift_labels")
        if isinstance(shifted, torch.Tensor):
            return torch.nn.functional.pad(shifted, (1, 0), value=IGNORED_LABEL)
        for name in self.label_names:
            value = inputs.get(name)
            if isinstance(value, torch.Tensor) and not name.endswith("_positions"):
                return None if value.is_floating_point() or value.dim() == 0 else value
        return None


def _span_targets(inputs: Inputs) -> int | None:
    """Start and end positions that lie on an attended token of their row; None where there are none."""
    found, ids = 0, inputs.get("input_ids")
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2:
        return None
    mask = inputs.get("attention_mask")
    attended = torch.ones_like(ids) if mask is None else mask
    for name in ("start_positions", "end_positions"):
        positions = inputs.get(name)
        if not isinstance(positions, torch.Tensor):
            return None
        positions = positions.reshape(-1)
        within = (positions >= 0) & (positions < ids.shape[1])
        on_token = attended.gather(1, positions.clamp(0, ids.shape[1] - 1)[:, None]).squeeze(1).bool()
        found += int((within & on_token).sum())
    return found


def num_tokens(inputs: Inputs) -> int:
    """Tokens that are attended to, or all where there is no mask; rows where there are no tokens."""
    mask = inputs.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.dim() in (2, 3) and not mask.is_floating_point():
        return int(mask.count_nonzero())
    return num_positions(inputs)


def num_positions(inputs: Any) -> int:
    """Positions computed, padding included; rows where there are no tokens."""
    ids = inputs.get("input_ids") if isinstance(inputs, Mapping) else None
    return ids.numel() if isinstance(ids, torch.Tensor) else num_rows(inputs)
