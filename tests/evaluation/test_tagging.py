"""Entities in tagged sentences."""

from __future__ import annotations

import numpy as np
import pytest

from burnish.evaluation.metrics import Metrics
from burnish.evaluation.reading import Reading
from burnish.evaluation.tagging import spans_of


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O O", set()),
        ("B-PER I-PER O B-LOC", {(0, 2, "PER"), (3, 4, "LOC")}),
        ("B-PER B-PER", {(0, 1, "PER"), (1, 2, "PER")}),
        ("I-PER I-PER", {(0, 2, "PER")}),
        ("B-PER I-LOC I-LOC", {(0, 1, "PER"), (1, 3, "LOC")}),
        ("O I-PER O I-PER", {(1, 2, "PER"), (3, 4, "PER")}),
        ("S-PER B-LOC E-LOC I-LOC", {(0, 1, "PER"), (1, 3, "LOC"), (3, 4, "LOC")}),
        ("B-LAST-NAME I-LAST-NAME", {(0, 2, "LAST-NAME")}),
    ],
)
def test_spans(tags: str, spans: set[tuple[int, int, str]]) -> None:
    assert spans_of(tags.split()) == spans


def test_positions_without_a_label_do_not_count() -> None:
    logits = np.eye(3)[[[1, 2, 0, 2], [0, 0, 1, 1]]]  # (sentences, tokens, tags)
    labels = np.array([[1, -100, 0, -100], [0, 1, -100, -100]])
    metrics = Metrics(["seqeval"], Reading(class_names=["O", "B-X", "I-X"]))
    metrics.update(logits, labels)
    assert metrics.compute() == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "accuracy": 0.75}
