"""A trained text classifier, ready to be asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from burnish.core.errors import DataError

from .columns import PAIRS, TEXTS, is_missing_text
from .labels import MULTI_LABEL, REGRESSION
from .prediction_batches import batches_by_length, device_for_prediction
from .pretrained import load_trained
from .recipe import TASK_KEY

TOKENS_PER_BATCH = 16_384


class TextClassifier:
    """Gives each row its class with the probability of every class, its labels, or its number."""

    def __init__(
        self, model: Any, tokenizer: Any, text_columns: Sequence[str] | None = None, max_length: int | None = None
    ) -> None:
        """`text_columns` are those of the training data; without them the usual names are looked for."""
        self.model = model.eval().to(device_for_prediction())
        self.tokenizer = tokenizer
        self.text_columns = list(text_columns) if text_columns else None
        self.max_length = max_length
        config = model.config
        self.names = [str(config.id2label[number]) for number in range(config.num_labels)]
        self.problem_type = config.problem_type or (REGRESSION if config.num_labels == 1 else None)

    @classmethod
    def load(cls, folder: Path) -> TextClassifier:
        """Loads a folder that training has written.

        Raises:
            SettingError: it holds no model, no tokenizer, or no weights.
        """
        from burnish.models import loading
        from burnish.models.contract import facts_of

        model, tokenizer = load_trained(folder, "AutoModelForSequenceClassification")
        loading.ensure_pad_token(tokenizer, model)
        task = getattr(model.config, TASK_KEY, None) or {}
        limit = task.get("max_seq_length") or loading.longest_input(tokenizer, model, facts_of(model).max_positions)
        return cls(model, tokenizer, task.get("text_columns"), limit)

    def predict(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """One dict a row, in order: `prediction` (a class, a list of labels, or a number), and `probabilities`, a dict
        from class to probability, where there are classes.

        Raises:
            DataError: the text column is missing, or a row has no text.
        """
        texts = [self._texts(number, row) for number, row in enumerate(rows)]
        if not texts:
            return []
        cut = self.max_length is not None
        encoded = self.tokenizer(*map(list, zip(*texts, strict=True)), truncation=cut, max_length=self.max_length)
        return [self._answer(row) for row in self._logits(encoded)]

    def _logits(self, encoded: Any) -> np.ndarray:
        """Shape (rows, classes), float32, in the order of the rows."""
        import torch

        lengths = [len(ids) for ids in encoded["input_ids"]]
        logits = np.zeros((len(lengths), len(self.names)), dtype=np.float32)
        for batch in batches_by_length(lengths, TOKENS_PER_BATCH):
            inputs = {name: [values[row] for row in batch] for name, values in encoded.items()}
            padded = self.tokenizer.pad(inputs, return_tensors="pt").to(self.model.device)
            with torch.inference_mode():
                logits[batch] = self.model(**padded).logits.float().cpu().numpy()
        return logits

    def _answer(self, logits: np.ndarray) -> dict[str, Any]:
        if self.problem_type == REGRESSION:
            return {"prediction": float(logits[0])}
        several = self.problem_type == MULTI_LABEL
        shares = 1 / (1 + np.exp(-logits)) if several else _softmax(logits)
        probabilities = {name: float(share) for name, share in zip(self.names, shares, strict=True)}
        if several:
            chosen: Any = [name for name, share in probabilities.items() if share > 0.5]
        else:
            chosen = self.names[int(shares.argmax())]
        return {"prediction": chosen, "probabilities": probabilities}

    def _texts(self, number: int, row: Mapping[str, Any]) -> list[str]:
        columns = self._columns(row)
        for column in columns:
            if is_missing_text(row[column]):
                raise DataError(f"Row {number + 1}: the text in column {column!r} is missing ({row[column]!r}).")
        return [str(row[column]) for column in columns]

    def _columns(self, row: Mapping[str, Any]) -> list[str]:
        """The columns of the training data; where these are not there, those with usual names."""
        wanted = self.text_columns
        if wanted and all(name in row for name in wanted):
            return wanted
        usual = [list(pair) for pair in PAIRS] + [[name] for name in TEXTS]
        for names in usual:
            if all(name in row for name in names) and (wanted is None or len(names) == len(wanted)):
                return names
        needed = " and ".join(map(repr, wanted or ["text"]))
        raise DataError(
            f"The model reads {needed}, but the rows have {', '.join(map(repr, row))}. Name yours with --text_column, "
            "or rename it."
        )


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()
