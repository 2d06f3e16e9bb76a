"""What of a model's output is a prediction."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

SELDOM_WANTED = (
    *("past_key_values", "cache_params", "mems"),
    *("hidden_states", "encoder_hidden_states", "decoder_hidden_states", "encoder_last_hidden_state"),
    *("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions", "global_attentions"),
    *("router_logits", "encoder_router_logits", "decoder_router_logits", "aux_loss", "z_loss", "rope_deltas"),
    *("image_hidden_states", "vision_hidden_states", "audio_hidden_states", "extract_features"),
)
"""Outputs that are large, and that nobody who did not name them wants gathered for every example."""


def keys_to_ignore(config: Any, asked: Iterable[str] | None = None) -> tuple[str, ...]:
    """The outputs that are no predictions: those asked for alone, else those that the model's config names and those
    that are seldom wanted. So ``ignore_keys=[]`` asks for everything."""
    if asked is not None:
        return tuple(asked)
    named = getattr(config, "keys_to_ignore_at_inference", None) or ()
    return tuple(dict.fromkeys((*named, *SELDOM_WANTED)))


def logits_of(outputs: Any, labels_given: bool, ignore_keys: Iterable[str] = SELDOM_WANTED) -> Any:
    """What the model returned but its loss and the ignored keys, detached.

    Args:
        outputs: a mapping (such as a ``ModelOutput``), dataclass, tuple or list, or one tensor.
        labels_given: whether the model was given labels. Then a tuple begins with the loss, if that is one number.
        ignore_keys: names left out; they mean nothing in a tuple.

    Returns:
        The tensor where there is one, a tuple where there are several, None where there is none. What holds no
        tensors, such as a cache object, is left out.
    """
    if isinstance(outputs, (torch.Tensor, np.ndarray)):
        return _detached(outputs)
    if isinstance(outputs, (tuple, list)) and not hasattr(outputs, "_fields"):
        found = list(outputs)
        if labels_given and found and _is_loss(found[0]):
            found = found[1:]
    else:
        ignored = {"loss", *ignore_keys}
        found = [value for key, value in _named(outputs).items() if key not in ignored]
    kept = tuple(_detached(value) for value in found if _holds_tensors(value))
    if not kept:
        return None
    return kept[0] if len(kept) == 1 else kept


def without_padding(outputs: Any, mask: Any, fill: float, spans: bool = False) -> Any:
    """Outputs of tokens with `fill` at padding, so that what comes out for a row does not depend on its batch.

    Args:
        outputs: a tensor, or tensors in a tuple. Those of shape (batch, length, …) with three dimensions are of tokens;
            others stay as they are.
        mask: the attention mask (batch, length), or None.
        spans: tensors of shape (batch, length) are of tokens too (question answering).
    """
    if isinstance(outputs, tuple):
        return tuple(without_padding(part, mask, fill, spans) for part in outputs)
    if not isinstance(outputs, torch.Tensor) or not isinstance(mask, torch.Tensor) or mask.dim() != 2:
        return outputs
    of_tokens = outputs.shape[:2] == mask.shape and (outputs.dim() == 3 or (spans and outputs.dim() == 2))
    if not of_tokens:
        return outputs
    padding = mask.eq(0).reshape(*mask.shape, *[1] * (outputs.dim() - 2))
    return outputs.masked_fill(padding, fill)


def _named(outputs: Any) -> Mapping[str, Any]:
    if isinstance(outputs, Mapping):
        return outputs
    if hasattr(outputs, "_asdict"):
        return outputs._asdict()  # a NamedTuple has names
    if dataclasses.is_dataclass(outputs):
        return {field.name: getattr(outputs, field.name) for field in dataclasses.fields(outputs)}
    return {}


def _is_loss(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() <= 1 and value.numel() == 1


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return any(_holds_tensors(part) for part in value)
    return isinstance(value, (torch.Tensor, np.ndarray))


def _detached(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _detached(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(_detached(part) for part in value)
    return value.detach() if isinstance(value, torch.Tensor) else value
