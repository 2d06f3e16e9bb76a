"""Which parameters decay: the two groups that transformers makes, in its order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from torch import nn

_NO_DECAY = re.compile(r"bias|layernorm|rmsnorm|(^|\.|_)norm(\.|$)")
"""Names of biases and of normalisation layers. Names decide, since most models bring a normalisation class of their
own; a class of torch whose name says nothing is found by type."""


def decay_parameter_names(model: nn.Module) -> list[str]:
    """Names of the parameters that weight decay shrinks: all but biases and the weights of normalisation layers.

    A name with "bias" in it counts as a bias, so T5's table of relative positions does not decay, as in transformers.
    A parameter that is shared is listed under each of its names.
    """
    norms = {name for name, part in model.named_modules(remove_duplicate=False) if isinstance(part, nn.LayerNorm)}
    return [
        name
        for name, _ in model.named_parameters(remove_duplicate=False)
        if name.rpartition(".")[0] not in norms and not _NO_DECAY.search(name.lower())
    ]


def parameter_groups(
    model: nn.Module, weight_decay: float, decaying: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """Two groups of the trainable parameters: those that decay by `weight_decay`, then those that do not.

    Each is in the order of ``named_parameters()``, and both exist even if empty: an optimizer numbers its state by this
    order, so states can be exchanged with an optimizer that transformers made.

    Args:
        decaying: names of the parameters that decay; those of `decay_parameter_names` where they are not given.
    """
    decaying = set(decay_parameter_names(model) if decaying is None else decaying)
    trainable = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    return [
        {"params": [p for name, p in trainable if name in decaying], "weight_decay": weight_decay},
        {"params": [p for name, p in trainable if name not in decaying], "weight_decay": 0.0},
    ]
