"""Cutting away padding that the data brought along."""

from __future__ import annotations

from typing import Any

import torch

from burnish.core.types import IGNORED_LABEL, Inputs

_BESIDE_THE_INPUT = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "special_tokens_mask")
_BESIDE_THE_LABELS = ("labels", "decoder_input_ids", "decoder_attention_mask")


def trimmed(inputs: Inputs, is_encoder_decoder: bool = False) -> Inputs:
    """The same batch without the columns at either end that no row attends to and that carry no label.

    Works on the last axis of `attention_mask` (batch, length) or (batch, choices, length) and of all that goes with
    it. Padding with labels other than -100 stays, since it carries loss. A batch without a mask is left as it is.
    For encoder-decoder models, columns at the end of `labels` that are -100 in every row go too.
    """
    if is_encoder_decoder:
        inputs = _without_unlabelled_end(inputs)
    mask = inputs.get("attention_mask")
    if not isinstance(mask, torch.Tensor) or mask.dim() not in (2, 3) or mask.shape[-1] == 0:
        return inputs
    labels = inputs.get("labels")
    beside = [name for name in _BESIDE_THE_INPUT if _same_length(inputs.get(name), mask)]
    needed = mask.flatten(0, -2).ne(0).any(0)  # (length,)
    if not is_encoder_decoder and isinstance(labels, torch.Tensor) and labels.shape == mask.shape:
        if not labels.is_floating_point():
            needed = needed | labels.flatten(0, -2).ne(IGNORED_LABEL).any(0)
        beside.append("labels")
    return _cut(inputs, beside, needed)


def _without_unlabelled_end(inputs: Inputs) -> Inputs:
    labels = inputs.get("labels")
    if not isinstance(labels, torch.Tensor) or labels.dim() != 2 or labels.is_floating_point():
        return inputs
    needed = labels.ne(IGNORED_LABEL).any(0)
    if needed.numel():
        needed[0] = True  # the start stays: a decoder's first position is its start token
    return _cut(inputs, [name for name in _BESIDE_THE_LABELS if _same_length(inputs.get(name), labels)], needed)


def _same_length(value: Any, reference: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() >= 2 and value.shape[-1] == reference.shape[-1]


def _cut(inputs: Inputs, names: list[str], needed: torch.Tensor) -> Inputs:
    """The columns from the first to the last that is needed; everything if none or all are."""
    kept = needed.nonzero()
    if kept.numel() == 0 or bool(needed[0] & needed[-1]):
        return inputs
    first, last = int(kept[0]), int(kept[-1])
    # contiguous: the columns that go should not stay in memory, or travel to the device
    return {**inputs, **{name: inputs[name][..., first : last + 1].contiguous() for name in names}}
