"""How text is decoded in an evaluation, and decoding a batch."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from burnish.core.types import Inputs

from .prompts import encoder_inputs, prompts_of


def settings_from(max_length: int | None, num_beams: int | None, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `generate`: those given to the call, completed by those of the training arguments."""
    settings = {name: value for name, value in given.items() if value is not None}
    if "max_length" not in settings and "max_new_tokens" not in settings and max_length is not None:
        settings["max_length"] = max_length
    if num_beams is not None:
        settings.setdefault("num_beams", num_beams)
    return settings


def pad_id_of(model: Any, processing_class: Any) -> int:
    """What fills up shorter texts: the tokenizer's padding, else the model's, else its end of text, else 0."""
    candidates = [
        getattr(processing_class, "pad_token_id", None),
        getattr(getattr(model, "config", None), "pad_token_id", None),
        getattr(getattr(model, "generation_config", None), "eos_token_id", None),
    ]
    flat = [c[0] if isinstance(c, (list, tuple)) and c else c for c in candidates]
    return next((token for token in flat if isinstance(token, int) and token >= 0), 0)


@torch.no_grad()
def generated(model: nn.Module, inputs: Inputs, is_encoder_decoder: bool, pad_id: int, **settings: Any) -> torch.Tensor:
    """What the model writes for each row of a batch: new ids only, (batch, longest), filled up with `pad_id`.

    A decoder-only model is given the prompt of each row, and its answer is cut off behind it.
    """
    given = encoder_inputs(inputs) if is_encoder_decoder else prompts_of(inputs, pad_id)
    settings = {"pad_token_id": pad_id, **settings}
    written = model.generate(**given, **settings)  # type: ignore[operator]
    return written if is_encoder_decoder else written[:, given["input_ids"].shape[1] :]


def decoding_config(given: Any) -> Any:
    """A `GenerationConfig` of a path, a name, or the object itself; None for the model's own."""
    if given is None:
        return None
    from transformers import GenerationConfig

    return copy.deepcopy(given) if isinstance(given, GenerationConfig) else GenerationConfig.from_pretrained(given)
