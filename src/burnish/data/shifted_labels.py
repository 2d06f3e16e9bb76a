"""Labels of a loss that predicts each position from the one before it."""

from __future__ import annotations

import torch

from burnish.core.types import IGNORED_LABEL, Inputs


def with_predictable_labels(inputs: Inputs) -> Inputs:
    """The same batch without the labels of tokens that stand right after padding.

    Such a token is the first of its row. With padding on the left it would be predicted from padding, and only in rows
    that are shorter than the longest: what a row adds to the loss would depend on its batch. Without padding nothing
    stands before it, and it carries no loss either.

    Args:
        inputs: looked at are `labels` and `attention_mask`, whole numbers of the same shape (batch, length).
    """
    labels, mask = inputs.get("labels"), inputs.get("attention_mask")
    if not isinstance(labels, torch.Tensor) or not isinstance(mask, torch.Tensor) or labels.shape != mask.shape:
        return inputs
    if labels.dim() != 2 or labels.is_floating_point():
        return inputs
    after_padding = torch.zeros_like(labels, dtype=torch.bool)
    after_padding[:, 1:] = mask[:, 1:].ne(0) & mask[:, :-1].eq(0)
    if not bool((after_padding & labels.ne(IGNORED_LABEL)).any()):
        return inputs
    return {**inputs, "labels": labels.masked_fill(after_padding, IGNORED_LABEL)}
