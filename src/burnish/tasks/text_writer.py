"""A trained language model, ready to be asked: text in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from burnish.core.errors import DataError

from .language_rows import prompt_tokens
from .prediction_batches import batches_by_length, device_for_prediction
from .pretrained import load_trained
from .recipe import TASK_KEY

TOKENS_PER_BATCH = 8_192
NEW_TOKENS = 128
PROMPTS = ("prompt", "text", "source", "instruction", "question", "input")


class TextWriter:
    """Writes what follows a prompt (or what a source becomes), taking the likeliest token each time."""

    def __init__(self, model: Any, tokenizer: Any, column: str | None = None, max_length: int | None = None):
        self.model = model.eval().to(device_for_prediction())
        self.tokenizer = tokenizer
        self.columns = tuple(dict.fromkeys([column or PROMPTS[0], *PROMPTS]))
        self.max_length = max_length
        self.is_encoder_decoder = bool(model.config.is_encoder_decoder)

    @classmethod
    def load(cls, folder: Path, auto_class_name: str) -> TextWriter:
        """Loads a folder that training has written. Raises `SettingError` where it is incomplete."""
        from burnish.models import loading
        from burnish.models.contract import facts_of

        model, tokenizer = load_trained(folder, auto_class_name)
        loading.ensure_pad_token(tokenizer, model)
        task = getattr(model.config, TASK_KEY, None) or {}
        limit = loading.longest_input(tokenizer, model, facts_of(model).max_positions)
        if model.config.is_encoder_decoder:
            limit = task.get("max_seq_length") or limit  # sources are cut as in training
        return cls(model, tokenizer, (task.get("text_columns") or [None])[0], limit)

    def predict(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """One dict a row, in order: `prediction`, the text that was written, without the prompt.

        Raises:
            DataError: a row has no prompt.
        """
        prompts = [self._prompt(number, row) for number, row in enumerate(rows)]
        if not prompts:
            return []
        texts = [""] * len(prompts)
        tokens = self._tokens(prompts)
        for batch in batches_by_length([len(ids) for ids in tokens], TOKENS_PER_BATCH):
            for row, text in zip(batch, self._written([tokens[row] for row in batch]), strict=True):
                texts[row] = text
        return [{"prediction": text} for text in texts]

    def _tokens(self, prompts: list[str]) -> list[list[int]]:
        """Room is left for what is written; a prompt that is too long loses its start (a source its end)."""
        if self.is_encoder_decoder:
            cut = self.max_length is not None
            ids: list[list[int]] = self.tokenizer(prompts, truncation=cut, max_length=self.max_length)["input_ids"]
            return ids
        room = None if self.max_length is None else max(1, self.max_length - NEW_TOKENS)
        return [ids[-room:] if room else ids for ids in prompt_tokens(self.tokenizer, prompts)]

    def _written(self, tokens: list[list[int]]) -> list[str]:
        import torch

        side = "right" if self.is_encoder_decoder else "left"
        padded = self.tokenizer.pad({"input_ids": tokens}, padding_side=side, return_tensors="pt")
        inputs = {name: padded[name].to(self.model.device) for name in ("input_ids", "attention_mask")}
        start, room = 0, NEW_TOKENS
        if not self.is_encoder_decoder:  # what is written follows the prompt, and shares its positions
            start = inputs["input_ids"].shape[1]
            room = max(1, (self.max_length or start + NEW_TOKENS) - start)
        pad = self.tokenizer.pad_token_id
        with torch.inference_mode():
            ids = self.model.generate(**inputs, max_new_tokens=min(NEW_TOKENS, room), do_sample=False, pad_token_id=pad)
        texts: list[str] = self.tokenizer.batch_decode(ids[:, start:], skip_special_tokens=True)
        return texts

    def _prompt(self, number: int, row: Mapping[str, Any]) -> str:
        for name in self.columns:
            value = row.get(name)
            if isinstance(value, str) and value.strip():
                return value
        raise DataError(
            f"Row {number + 1}: there is no text in {' or '.join(map(repr, self.columns[:3]))}; "
            f"the row has {', '.join(map(repr, row))}."
        )
