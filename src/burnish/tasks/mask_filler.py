"""A trained masked language model, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from burnish.core.errors import DataError

from .columns import TEXTS
from .prediction_batches import device_for_prediction
from .pretrained import load_trained
from .recipe import TASK_KEY

NUM_SHOWN = 5


class MaskFiller:
    """Fills in the mask of each text."""

    def __init__(self, model: Any, tokenizer: Any, column: str | None = None):
        self.model = model.eval().to(device_for_prediction())
        self.tokenizer = tokenizer
        self.columns = tuple(dict.fromkeys([column or TEXTS[0], *TEXTS]))

    @classmethod
    def load(cls, folder: Path) -> MaskFiller:
        """Loads a folder that training has written. Raises `SettingError` where it is incomplete."""
        model, tokenizer = load_trained(folder, "AutoModelForMaskedLM")
        task = getattr(model.config, TASK_KEY, None) or {}
        return cls(model, tokenizer, (task.get("text_columns") or [None])[0])

    def predict(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """One dict a row, in order: `prediction`, the likeliest token for the mask, and the `probabilities` of five.

        Raises:
            DataError: a row has no text with exactly one mask token in it.
        """
        return [self._filled(number, row) for number, row in enumerate(rows)]

    def _filled(self, number: int, row: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        inputs = self.tokenizer(self._text(number, row), truncation=True, return_tensors="pt").to(self.model.device)
        places = (inputs["input_ids"][0] == self.tokenizer.mask_token_id).nonzero().flatten().tolist()
        if len(places) != 1:
            raise DataError(
                f"Row {number + 1}: the text has {len(places)} mask tokens. "
                f"Put {self.tokenizer.mask_token} where a word is to be filled in, once."
            )
        with torch.inference_mode():
            shares = self.model(**inputs).logits[0, places[0]].float().softmax(-1)
        best = shares.topk(min(NUM_SHOWN, len(shares)))
        words = [self.tokenizer.decode([token]).strip() for token in best.indices.tolist()]
        return {"prediction": words[0], "probabilities": dict(zip(words, best.values.tolist(), strict=True))}

    def _text(self, number: int, row: Mapping[str, Any]) -> str:
        for name in self.columns:
            if isinstance(row.get(name), str):
                return str(row[name])
        raise DataError(f"Row {number + 1}: there is no text; the row has {', '.join(map(repr, row))}.")
