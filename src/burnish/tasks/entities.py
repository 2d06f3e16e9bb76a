"""Entities in tagged sentences: spans of words, read from BIO tags, and how well they were found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .metrics import IGNORED_LABEL, Metrics, first_array, precision_recall_f1

Span = tuple[int, int, str]
"""First word, word after the last, type."""


def are_bio(names: Iterable[str]) -> bool:
    """Whether tags mark spans: "O", "B-type" and "I-type", and at least one of the latter."""
    given = list(names)
    return any(name != "O" for name in given) and all(name == "O" or name[:2] in ("B-", "I-") for name in given)


def spans_of(tags: Sequence[str]) -> set[Span]:
    """The spans of a sentence. "I-type" after another type or "O" begins one, as in the CoNLL-2000 evaluation."""
    spans, start, kind = set(), 0, ""
    for place, tag in enumerate([*tags, "O"]):
        goes_on = tag[:2] == "I-" and tag[2:] == kind
        if kind and not goes_on:
            spans.add((start, place, kind))
            kind = ""
        if tag != "O" and not goes_on:
            start, kind = place, tag[2:]
    return spans


def entity_metrics(predicted: Iterable[Sequence[str]], labels: Iterable[Sequence[str]]) -> Metrics:
    """Precision, recall and F1 over all entities of all sentences; one counts if type and both ends are right."""
    hits = num_predicted = num_present = 0
    for said, true in zip(predicted, labels, strict=True):
        found, present = spans_of(said), spans_of(true)
        hits += len(found & present)
        num_predicted += len(found)
        num_present += len(present)
    return precision_recall_f1(hits, num_predicted, num_present)


def tagging_metrics(names: Sequence[str]) -> Callable[[Any], Metrics]:
    """A `compute_metrics` for logits of shape (sentences, tokens, tags): accuracy over words, and of entities where
    the tags are BIO. Positions with the label -100 do not count."""

    def compute_metrics(prediction: Any) -> Metrics:
        predicted = first_array(prediction.predictions).argmax(-1)
        labels = np.asarray(prediction.label_ids)
        counted = labels != IGNORED_LABEL
        metrics = {"accuracy": float((predicted == labels)[counted].mean()) if counted.any() else 0.0}
        if not are_bio(names):
            return metrics

        def tags(numbers: np.ndarray) -> list[list[str]]:
            return [[names[number] for number in row[kept]] for row, kept in zip(numbers, counted, strict=True)]

        return {**entity_metrics(tags(predicted), tags(labels)), **metrics}

    return compute_metrics
