"""Cutting away padding that the data brought along."""

from __future__ import annotations

from typing import Any

import torch

from burnish.core.types import IGNORED_LABEL, Inputs

_BESIDE_THE_INPUT = (
    "input_ids",
    "attention_mask",
    "token_type_ids",
    "position_ids",
    "special_tokens_mask",
    "global_attention_mask",
)
_BESIDE_THE_LABELS = ("labels", "decoder_input_ids", "decoder_attention_mask")


def trimmed(inputs: Inputs, is_encoder_decoder: bool = False) -> Inputs:
    """The same batch without the columns at either end that no row attends to and that carry no label.

    Works on the last axis of `attention_mask` and `input_ids`, both (batch, length) or (batch, choices, length), and of
    all that is known to go with it. Padding with labels other than -100 stays, since it carries loss. A batch without a
    mask, or with another input that has an axis of this length, is left as it is: what it means is not known. Where
    there are other inputs at all, only the right end is cut, since they may name positions (`start_positions`).
    For encoder-decoder models, columns at the end of `labels` that are -100 in every row go too.
    """
    if is_encoder_decoder:
        inputs = _without_unlabelled_end(inputs)
    mask, ids = inputs.get("attention_mask"), inputs.get("input_ids")
    if not isinstance(mask, torch.Tensor) or not isinstance(ids, torch.Tensor) or ids.shape != mask.shape:
        return inputs
    if mask.dim() not in (2, 3) or mask.shape[-1] == 0:
        return inputs
    if bool(mask.all()):
        return inputs
    needed = mask.flatten(0, -2).ne(0).any(0)  # (length,)
    beside = [name for name in _BESIDE_THE_INPUT if _same_length(inputs.get(name), mask)]
    if not is_encoder_decoder and _is_label_of_each(inputs.get("labels"), mask):
        needed |= inputs["labels"].flatten(0, -2).ne(IGNORED_LABEL).any(0)
        beside.append("labels")
    others = _others(inputs, beside, is_encoder_decoder)
    if any(mask.shape[-1] in value.shape[1:] for value in others.values()):
        return inputs
    if others.keys() - {"labels"}:
        needed[0] = True
    return _cut(inputs, beside, needed)


def _is_label_of_each(labels: Any, mask: torch.Tensor) -> bool:
    """Whether there is a class for each token. Numbers of this shape may as well be one for each class."""
    return isinstance(labels, torch.Tensor) and labels.shape == mask.shape and not labels.is_floating_point()


def _others(inputs: Inputs, beside: list[str], is_encoder_decoder: bool) -> dict[str, torch.Tensor]:
    """The tensors that are not known to go with the input; what goes with a decoder's labels is a sequence apart."""
    known = {*beside, *(_BESIDE_THE_LABELS if is_encoder_decoder else ())}
    return {name: value for name, value in inputs.items() if name not in known and isinstance(value, torch.Tensor)}


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
    if needed.numel() == 0 or bool(needed[0] & needed[-1]):
        return inputs
    kept = needed.nonzero()
    if kept.numel() == 0:
        return inputs
    first, last = int(kept[0]), int(kept[-1])
    # contiguous: the columns that go should not stay in memory, or travel to the device
    return {**inputs, **{name: inputs[name][..., first : last + 1].contiguous() for name in names}}
