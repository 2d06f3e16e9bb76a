"""How text is to be decoded: every setting there may be, in the order in which they count, as one value."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from burnish.core.errors import SettingError

NEW_TOKENS = 20
"""Tokens that transformers writes where no length is set anywhere."""

UNDERSTOOD = frozenset(
    {
        *("max_new_tokens", "max_length", "min_new_tokens", "min_length", "eos_token_id", "stop_strings"),
        *("do_sample", "temperature", "top_k", "top_p", "min_p"),
    }
)
"""Settings that the decoding here follows; `Decoding` holds them."""

SAY_NOTHING_OF_TEXTS = frozenset(
    {
        *("bos_token_id", "pad_token_id", "decoder_start_token_id", "transformers_version", "_from_model_config"),
        *("use_cache", "cache_implementation", "cache_config", "return_legacy_cache", "prefill_chunk_size"),
        *("output_scores", "output_logits", "output_attentions", "output_hidden_states", "return_dict_in_generate"),
        *("disable_compile", "compile_config", "low_memory", "renormalize_logits", "remove_invalid_values"),
        *("early_stopping", "length_penalty", "diversity_penalty", "num_assistant_tokens", "is_assistant"),
        *("num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_lookbehind"),
        *("target_lookbehind", "max_matching_ngram_size"),
    }
)
"""Settings without an effect on what one text a prompt, without beams and an assistant, comes to."""

NEUTRAL_AT_ONE = frozenset(
    {
        *("num_beams", "num_beam_groups", "num_return_sequences", "repetition_penalty"),
        *("encoder_repetition_penalty", "typical_p", "guidance_scale"),
    }
)
"""Settings that do nothing at 1. All others do nothing where they are None, 0, False or empty."""


@dataclass(frozen=True)
class Sampling:
    """From which tokens the next one is drawn, with the probabilities of the model."""

    temperature: float
    top_k: int
    """The likeliest so many; 0 for all."""
    top_p: float
    """The likeliest ones that together have this probability."""
    min_p: float
    """Those that have at least this share of the probability of the likeliest."""


@dataclass(frozen=True)
class Decoding:
    """When a text ends and how its next token is chosen. Lengths are in tokens."""

    max_new_tokens: int | None
    max_length: int | None
    """With the prompt, or with the first token of a decoder; counts where `max_new_tokens` is None."""
    min_new_tokens: int | None
    min_length: int
    ends: tuple[int, ...]
    """Tokens that end a text; they are part of it."""
    stop_strings: tuple[str, ...]
    sampling: Sampling | None
    """None for the likeliest token each time."""

    def most(self, begun: int, positions: int | None = None) -> int:
        """New tokens at the most, of a text that begins with `begun` tokens, in a model with so many positions."""
        if self.max_new_tokens is not None:
            most = self.max_new_tokens
        else:
            most = NEW_TOKENS if self.max_length is None else self.max_length - begun
        return most if positions is None else min(most, positions - begun)

    def least(self, begun: int) -> int:
        """New tokens before which it does not end."""
        return self.min_length - begun if self.min_new_tokens is None else self.min_new_tokens


class Asked:
    """Every setting with its value: of the call, else of the config given, else of the model's own."""

    def __init__(self, model: Any, settings: Mapping[str, Any]) -> None:
        rest = {name: value for name, value in settings.items() if name != "generation_config"}
        configs = (settings.get("generation_config"), getattr(model, "generation_config", None))
        self._layers = [rest, *(config.to_dict() for config in configs if config is not None)]

    def get(self, name: str, default: Any = None) -> Any:
        return next((layer[name] for layer in self._layers if layer.get(name) is not None), default)

    def further(self) -> dict[str, Any]:
        """The settings that a `Decoding` cannot hold and that change the text."""
        names = dict.fromkeys(name for layer in self._layers for name in layer)
        values = {name: self.get(name) for name in names if name not in UNDERSTOOD | SAY_NOTHING_OF_TEXTS}
        return {name: value for name, value in values.items() if not _is_neutral(name, value)}

    def decoding(self) -> Decoding:
        """What is understood here. Raises `SettingError`."""
        stops = self.get("stop_strings", ())
        sampling = None
        if self.get("do_sample", False):
            sampling = Sampling(
                float(self.get("temperature", 1.0)), int(self.get("top_k", 50)),
                float(self.get("top_p", 1.0)), float(self.get("min_p", 0.0)),
            )  # fmt: skip
            if sampling.temperature <= 0:
                raise SettingError(
                    f"temperature={sampling.temperature} must be above 0; do_sample=False draws nothing."
                )
        return Decoding(
            max_new_tokens=self.get("max_new_tokens"),
            max_length=self.get("max_length"),
            min_new_tokens=self.get("min_new_tokens"),
            min_length=self.get("min_length", 0),
            ends=_numbers(self.get("eos_token_id")),
            stop_strings=(stops,) if isinstance(stops, str) else tuple(stops),
            sampling=sampling,
        )


def settings_from(
    max_length: int | None, num_beams: int | None, given: Mapping[str, Any], is_encoder_decoder: bool = True
) -> dict[str, Any]:
    """Arguments of `generate`: those given to the call, completed by those of the training arguments.

    Args:
        max_length: the longest text to generate. A decoder-only model has the prompt in front of it, which does not
            count here.
    """
    settings = {name: value for name, value in given.items() if value is not None}
    if "max_length" not in settings and "max_new_tokens" not in settings and max_length is not None:
        settings["max_length" if is_encoder_decoder else "max_new_tokens"] = max_length
    if num_beams is not None:
        settings.setdefault("num_beams", num_beams)
    if settings.get("num_return_sequences", 1) != 1:
        raise SettingError(
            f"num_return_sequences={settings['num_return_sequences']}: an evaluation compares one text with each row's "
            "own. Call model.generate for more."
        )
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


def decoding_config(given: Any) -> Any:
    """A `GenerationConfig` of a dict, a path, a name, or the object itself; None for the model's own."""
    if given is None:
        return None
    from transformers import GenerationConfig

    if isinstance(given, GenerationConfig):
        return copy.deepcopy(given)
    return GenerationConfig(**given) if isinstance(given, Mapping) else GenerationConfig.from_pretrained(given)


def _is_neutral(name: str, value: Any) -> bool:
    if value is None or (name in NEUTRAL_AT_ONE and value == 1):
        return True
    return isinstance(value, (bool, int, float, list, tuple, dict, str)) and not value


def _numbers(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(map(int, value)) if isinstance(value, (list, tuple)) else (int(value),)
