"""Whether a model that continues texts sees only what comes before."""

from __future__ import annotations

from typing import Any

import torch

_LENGTH = 4
_TOLERANCE = 1e-3
"""Relative; what rounding makes of the same computation stays well below it, in 16 bits too."""


@torch.no_grad()
def sees_following_tokens(model: Any) -> bool:
    """Whether the logits of a token change with those that follow it: then its loss is no measure of prediction.

    Two rows of four tokens that differ in the last one alone go through the model, in evaluation mode.
    """
    device = next(model.parameters()).device
    first, second = _two_tokens(int(model.get_input_embeddings().weight.shape[0]), model.config)
    ids = torch.full((2, _LENGTH), first, device=device)
    ids[1, -1] = second
    was_training = model.training
    try:
        logits = model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[:, :-1].float()
    finally:
        model.train(was_training)
    return not torch.allclose(logits[0], logits[1], rtol=_TOLERANCE, atol=_TOLERANCE * float(logits.abs().max()))


def _two_tokens(vocab_size: int, config: Any) -> tuple[int, int]:
    """Two token ids that stand for words, as far as the config tells."""
    special = {getattr(config, f"{name}_token_id", None) for name in ("pad", "bos", "eos", "cls", "sep", "mask", "unk")}
    words = [token for token in range(vocab_size - 1, -1, -1) if token not in special][:2]
    return (words[0], words[1]) if len(words) == 2 else (0, vocab_size - 1)
