"""Metrics of language models: perplexity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from .formula import Formula
from .reading import Reading
from .totals import ExactSum, Totals

SCORES_AT_ONCE = 2**24
"""Scores that are brought to float32 at once: 64 MiB."""


def surprise(reading: Reading, predictions: Any, labels: Any) -> Totals:
    """The sum of -log p (nats) of the labels, and their number."""
    logits, truth = reading.targets(predictions, labels)
    at_once = max(1, SCORES_AT_ONCE // max(1, logits.shape[-1]))
    parts = zip(logits.split(at_once), truth.split(at_once), strict=True)
    losses = [torch.nn.functional.cross_entropy(part.float(), right, reduction="none").cpu() for part, right in parts]
    return {"nats": ExactSum.of(torch.cat(losses).numpy()), "targets": len(truth)}


def perplexity(totals: Mapping[str, Any]) -> float:
    """The exponential of the mean of -log p; infinite beyond the largest number, NaN where there are no targets."""
    return perplexity_of_loss(totals["nats"].over(totals["targets"]))


def perplexity_of_loss(mean: float) -> float:
    """The same of a mean cross-entropy (nats)."""
    return math.exp(mean) if not mean > 709 else math.inf


FORMULAS = {"perplexity": Formula(surprise, perplexity, False)}
