"""Decoding by the model's own `generate`: beams, assistants, penalties, and inputs that are no texts."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from burnish.core.divided import base_of
from burnish.core.errors import SettingError
from burnish.core.randomness import GENERATION, kept, seed_all, seed_for
from burnish.core.types import Inputs

from .decoding import Asked
from .prompts import by_length, filled_up

POSITIONS = 8192
"""Positions of prompts, each beam counted, that are decoded together at the most."""


class Library:
    """Writes texts by `generate`, sorted by length.

    Where tokens are drawn, each row is decoded alone, from a seed of its own: what is drawn for a batch depends on who
    is in it.

    Args:
        settings: arguments of `generate`.
        at_once: sequences at once at the most, each beam counted.
    """

    def __init__(
        self, model: Any, is_encoder_decoder: bool, settings: Mapping[str, Any], pad_id: int, seed: int, at_once: int
    ) -> None:
        self._model, self._is_encoder_decoder = model, is_encoder_decoder
        self._settings, self._pad_id, self._seed = settings, pad_id, seed
        asked = Asked(model, settings)
        self._ends = asked.decoding().ends
        self._draws = bool(asked.get("do_sample", False))
        self._beams = max(1, int(asked.get("num_beams", 1)))
        self._at_once = 1 if self._draws else max(1, at_once // self._beams)

    def write(self, prompts: Sequence[Sequence[int]], rows: Sequence[int]) -> list[list[int]]:
        """A text for each prompt; `rows` are their numbers in the dataset."""
        written: list[list[int]] = [[]] * len(prompts)
        for batch in by_length(prompts, self._at_once, POSITIONS // self._beams):
            with kept():
                if self._draws:
                    seed_all(seed_for(self._seed, GENERATION, rows[batch[0]]))
                for place, text in zip(batch, self._batch([prompts[place] for place in batch]), strict=True):
                    written[place] = text
        return written

    def _batch(self, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        side = "right" if self._is_encoder_decoder else "left"
        ids, mask = (part.to(self._model.device) for part in filled_up(prompts, self._pad_id, side))
        inputs = {"input_ids": ids, "attention_mask": mask}
        return [
            self._ended(row)
            for row in generated(self._model, inputs, self._is_encoder_decoder, self._pad_id, **self._settings).tolist()
        ]

    def _ended(self, row: list[int]) -> list[int]:
        """Without what fills the row up: all behind its end, or padding behind what was stopped otherwise."""
        for i, token in enumerate(row):
            if token in self._ends:
                return row[: i + 1]
        while row and row[-1] == self._pad_id:
            row.pop()
        return row


@torch.no_grad()
def generated(model: nn.Module, inputs: Inputs, is_encoder_decoder: bool, pad_id: int, **settings: Any) -> torch.Tensor:
    """What the model writes for each row of a batch: new ids only, (batch, longest), filled up with `pad_id`.

    Args:
        inputs: what is read before; prompts of a decoder-only model are padded on the left.
        settings: arguments of `generate`. Its cache is used, whatever training has set for the model.

    Raises:
        SettingError: the model writes no text.
    """
    if not callable(getattr(model, "generate", None)):
        raise SettingError(
            f"{type(model).__name__} writes no text: it has no `generate`. Set predict_with_generate=False, or load "
            "the weights with a head that does, such as AutoModelForCausalLM or AutoModelForSeq2SeqLM."
        )
    settings = {**settings, **_without_steps_of_others(model)}
    written = model.generate(**inputs, **_as_one(settings, pad_id))  # type: ignore[operator]
    return written[:, 1 if is_encoder_decoder else inputs["input_ids"].shape[1] :]


def _without_steps_of_others(model: nn.Module) -> dict[str, Any]:
    """transformers would have all processes decode equally many batches where it knows of ZeRO-3. They need not."""
    generate: Any = base_of(model).generate
    return {"synced_gpus": False} if "synced_gpus" in inspect.signature(generate).parameters else {}


def _as_one(settings: Mapping[str, Any], pad_id: int) -> dict[str, Any]:
    """Arguments of `generate`, which takes a config or single settings but not both."""
    ours = {"use_cache": True, "return_dict_in_generate": False}
    single = {
        "pad_token_id": pad_id,
        **{name: value for name, value in settings.items() if name != "generation_config"},
        **ours,
    }
    config = settings.get("generation_config")
    if config is None:
        return single
    config = copy.deepcopy(config)
    if config.pad_token_id is not None:
        single.setdefault("pad_token_id", config.pad_token_id)
    rest = config.update(**single)
    return {"generation_config": config, **rest}
