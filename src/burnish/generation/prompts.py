"""Prompts out of training rows."""

from __future__ import annotations

import torch

from burnish.core.types import IGNORED_LABEL, Inputs


def prompts_of(inputs: Inputs, pad_token_id: int) -> Inputs:
    """The prompts of a decoder-only model's training rows, padded on the left as generation needs it.

    The prompt of a row is what stands before its first target: the tokens whose labels are -100 at the start. A row
    without labels is prompt from start to end.

    Args:
        inputs: `input_ids` (batch, length), and `attention_mask` and `labels` of the same shape if there are any.
        pad_token_id: what stands before a shorter prompt; it is not attended to.

    Returns:
        `input_ids` and `attention_mask`, both (batch, longest prompt), int64.
    """
    ids = inputs["input_ids"]
    attended = inputs.get("attention_mask", torch.ones_like(ids)).bool()
    labels = inputs.get("labels")
    if isinstance(labels, torch.Tensor) and labels.shape == ids.shape:
        attended = attended & (labels.ne(IGNORED_LABEL).cumsum(-1) == 0)
    rows = [row[mask] for row, mask in zip(ids, attended, strict=True)]
    longest = max(max((len(row) for row in rows), default=0), 1)
    prompts = ids.new_full((len(rows), longest), pad_token_id)
    mask = torch.zeros_like(prompts)
    for i, row in enumerate(rows):
        prompts[i, longest - len(row) :] = row
        mask[i, longest - len(row) :] = 1
    return {"input_ids": prompts, "attention_mask": mask}


def encoder_inputs(inputs: Inputs) -> Inputs:
    """What the encoder of an encoder-decoder model reads: everything but the targets."""
    return {name: value for name, value in inputs.items() if name != "labels" and not name.startswith("decoder_")}


def with_pads(ids: torch.Tensor, pad_token_id: int) -> torch.Tensor:
    """Ids that a tokenizer can decode: -100 becomes padding."""
    return torch.where(ids == IGNORED_LABEL, torch.full_like(ids, pad_token_id), ids)
