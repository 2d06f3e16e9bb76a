"""Metrics of order, which need every row's score: the area under the ROC curve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from .formula import Formula
from .reading import Array, Reading, as_tensor, first, mismatch, on_host
from .totals import Totals


def scores(reading: Reading, predictions: Any, labels: Any) -> Totals:
    """Scores that order rows as the probability of each class does: log p / (1 - p), float64 (rows, classes), one
    column for two classes. Probabilities themselves would tie where they are near 1."""
    found, truth = as_tensor(first(predictions)), as_tensor(labels)
    if found.is_floating_point() and found.shape == truth.shape and truth.ndim == 2 and truth.shape[1] > 1:
        return {"scores": [on_host(found.double())], "labels": [on_host(truth > 0.5)]}
    if not found.is_floating_point():
        raise mismatch("a score for each class", found, truth)
    logits, truth = reading.targets(predictions, labels)
    return {"scores": [on_host(_log_odds(logits.double()))], "labels": [on_host(truth)]}


def roc_auc(totals: Mapping[str, Any]) -> float:
    """For two classes that of class 1, else the mean over classes of each against the rest, or over labels.

    NaN where a class is in no row or in every row, for it has no curve, and where a score is NaN.
    """
    found, labels = np.concatenate(totals["scores"]), np.concatenate(totals["labels"])
    if labels.ndim == 2:
        return float(np.mean([area(found[:, i], labels[:, i]) for i in range(labels.shape[1])]))
    if found.shape[1] == 1:
        return area(found[:, 0], labels == 1)
    return float(np.mean([area(found[:, i], labels == i) for i in range(found.shape[1])]))


def area(found: Array, is_positive: Array) -> float:
    """The share of pairs of a positive and a negative row in which the positive has the higher score; ties are half."""
    positives = int(is_positive.sum())
    pairs = positives * (len(found) - positives)
    if not pairs:
        return math.nan
    return float((ranks(found)[is_positive].sum() - positives * (positives + 1) / 2) / pairs)


def ranks(numbers: Array) -> Array:
    """1 for the lowest; equal numbers share the mean of their ranks. All NaN where one is, which has no rank."""
    if np.isnan(numbers).any():
        return np.full(len(numbers), math.nan)
    _, group, sizes = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    mean: Array = (last - (sizes - 1) / 2)[group]
    return mean


def _log_odds(logits: torch.Tensor) -> torch.Tensor:
    classes = logits.shape[-1]
    if classes == 1:
        return logits
    if classes == 2:
        return logits[:, 1:] - logits[:, :1]
    others = [torch.cat([logits[:, :i], logits[:, i + 1 :]], 1).logsumexp(1) for i in range(classes)]
    return logits - torch.stack(others, 1)


FORMULAS = {"roc_auc": Formula(scores, roc_auc, True)}
