"""Prompts of unlike length, and what a model writes for each of them alone."""

from __future__ import annotations

from typing import Any

import tiny
import torch

from burnish.generation.writer import Request, Writer
from burnish.models.contract import facts_of


def prompts(count: int, shortest: int = 1) -> list[list[int]]:
    return [tiny.words(shortest + (row * 7) % 17, seed=row) for row in range(count)]


class Bench:
    """A writer for a model, with what a request needs besides."""

    def __init__(self, model: Any, at_once: int = 3, seed: int = 0, tokenizer: Any = None) -> None:
        self.writer = Writer(model, facts_of(model), at_once)
        self._seed, self._tokenizer = seed, tokenizer

    def write(self, prompts: list[list[int]], rows: Any, settings: dict[str, Any]) -> list[list[int]]:
        return self.writer.write(Request(prompts, list(rows), settings, self._tokenizer, tiny.PAD, self._seed))


def one_by_one(model: Any, rows: list[list[int]], **settings: Any) -> list[list[int]]:
    """By the model's own `generate`, cut behind the first end of text."""
    ends = settings.get("eos_token_id", [tiny.SEP])
    found = []
    for row in rows:
        ids = torch.tensor([row])
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": True, "pad_token_id": tiny.PAD}
        text = model.eval().generate(**given, **settings)[0]
        new = text[1 if model.config.is_encoder_decoder else len(row) :].tolist()
        found.append(new[: next((i + 1 for i, token in enumerate(new) if token in ends), len(new))])
    return found


def restless(model: Any, factor: float = 30.0) -> Any:
    """A model that does not repeat one token for ever: its output weights are larger, and apart from its embeddings."""
    torch.manual_seed(1)
    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(torch.randn_like(head.weight) * factor * head.weight.std())
    return model
