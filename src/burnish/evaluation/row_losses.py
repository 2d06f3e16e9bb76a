"""The loss of each row, and the rows with the highest: where a model is most wrong, or a label is."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from burnish.core.types import IGNORED_LABEL

from .language import SCORES_AT_ONCE


def token_losses(logits: Any, labels: torch.Tensor, shifts_labels: bool) -> torch.Tensor:
    """Mean cross-entropy of the targets of each row, and their number.

    Args:
        logits: (rows, length, vocabulary); of several outputs in a tuple the first is taken.
        labels: (rows, length), -100 where there is no target.
        shifts_labels: position i predicts label i + 1.

    Returns:
        float64 (rows, 2): the loss, NaN for a row without a target, and the number of targets.
    """
    logits = logits[0] if isinstance(logits, tuple) else logits
    if shifts_labels:
        logits, labels = logits[:, :-1], labels[:, 1:]
    at_once = max(1, SCORES_AT_ONCE // max(1, logits.shape[-1]))
    found = torch.empty(len(labels), 2, dtype=torch.float64)
    for row, (scores, targets) in enumerate(zip(logits, labels.to(logits.device), strict=True)):
        places = targets.ne(IGNORED_LABEL).nonzero().squeeze(1)
        total = torch.zeros((), dtype=torch.float64)
        for part in places.split(at_once):
            losses = functional.cross_entropy(scores[part].float(), targets[part], reduction="none")
            total += losses.cpu().double().sum()
        found[row, 0] = total / len(places) if len(places) else torch.nan
        found[row, 1] = len(places)
    return found


def squared_errors(predictions: Any, labels: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Mean squared error of each row, (rows,), of numbers (rows,) or (rows, numbers)."""
    one, other = (np.asarray(side, np.float64).reshape(len(side), -1) for side in (predictions, labels))
    errors: np.ndarray[Any, np.dtype[np.float64]] = np.square(one - other).mean(1)
    return errors


def highest(losses: Any, most: int) -> list[int]:
    """Numbers of the rows with the highest loss, the highest first. Infinity and what is no number stand above all."""
    values = np.asarray(losses, np.float64)
    order = np.argsort(-np.where(np.isnan(values), np.inf, values), kind="stable")
    return [int(row) for row in order[:most]]
