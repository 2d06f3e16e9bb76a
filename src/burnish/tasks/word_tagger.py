"""A trained tagger, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from burnish.core.errors import DataError

from .prediction_batches import batches_by_length, device_for_prediction
from .pretrained import load_trained
from .recipe import TASK_KEY

TOKENS_PER_BATCH = 16_384
WORDS = ("tokens", "words")
TEXTS = ("text", "sentence")


class WordTagger:
    """Gives each word its tag. Sentences longer than the model are tagged in pieces."""

    def __init__(self, model: Any, tokenizer: Any, words_column: str | None = None, max_length: int | None = None):
        self.model = model.eval().to(device_for_prediction())
        self.tokenizer = tokenizer
        self.columns = tuple(dict.fromkeys([words_column or WORDS[0], *WORDS, *TEXTS]))
        self.max_length = max_length
        self.names = [str(model.config.id2label[number]) for number in range(model.config.num_labels)]

    @classmethod
    def load(cls, folder: Path) -> WordTagger:
        """Loads a folder that training has written. Raises `SettingError` where it is incomplete."""
        from burnish.models import loading
        from burnish.models.contract import facts_of

        model, tokenizer = load_trained(folder, "AutoModelForTokenClassification")
        loading.ensure_pad_token(tokenizer, model)
        task = getattr(model.config, TASK_KEY, None) or {}
        limit = task.get("max_seq_length") or loading.longest_input(tokenizer, model, facts_of(model).max_positions)
        return cls(model, tokenizer, (task.get("text_columns") or [None])[0], limit)

    def predict(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """One dict a row, in order: `words`, and `prediction` with the tag of each. A text is cut into words at spaces.

        Raises:
            DataError: a row has neither words nor a text.
        """
        sentences = [self._words(number, row) for number, row in enumerate(rows)]
        if not sentences:
            return []
        cut = self.max_length is not None
        pieces = self.tokenizer(
            sentences,
            is_split_into_words=True,
            truncation=cut,
            max_length=self.max_length,
            return_overflowing_tokens=cut,
        )
        owners = pieces.pop("overflow_to_sample_mapping", None) or list(range(len(sentences)))
        tags: list[dict[int, str]] = [{} for _ in sentences]
        for piece, numbers in enumerate(self._numbers(pieces)):
            for word, number in zip(pieces.word_ids(piece), numbers, strict=False):
                if word is not None:
                    tags[owners[piece]].setdefault(word, self.names[number])  # the first token of a word decides
        outside = "O" if "O" in self.names else None  # a word of characters that the tokenizer drops has no token
        return [
            {"words": words, "prediction": [found.get(place, outside) for place in range(len(words))]}
            for words, found in zip(sentences, tags, strict=True)
        ]

    def _numbers(self, pieces: Any) -> list[np.ndarray]:
        """The number of the likeliest tag of each token, for each piece."""
        import torch

        lengths = [len(ids) for ids in pieces["input_ids"]]
        found: list[np.ndarray] = [np.zeros(0, dtype=np.int64)] * len(lengths)
        for batch in batches_by_length(lengths, TOKENS_PER_BATCH):
            inputs = {name: [values[piece] for piece in batch] for name, values in pieces.items()}
            padded = self.tokenizer.pad(inputs, padding_side="right", return_tensors="pt").to(self.model.device)
            with torch.inference_mode():
                numbers = self.model(**padded).logits.argmax(-1).cpu().numpy()  # (pieces, tokens)
            for piece, row in zip(batch, numbers, strict=True):
                found[piece] = row
        return found

    def _words(self, number: int, row: Mapping[str, Any]) -> list[str]:
        for name in self.columns:
            value = row.get(name)
            words = value.split() if isinstance(value, str) else value
            if words and all(isinstance(word, str) and word.strip() for word in words):
                return list(words)
        raise DataError(
            f"Row {number + 1}: there are no words in {' or '.join(map(repr, self.columns))}; "
            f"the row has {', '.join(map(repr, row))}."
        )
