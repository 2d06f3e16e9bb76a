from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from burnish.tasks.entities import are_bio, entity_metrics, spans_of, tagging_metrics


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O O", set()),
        ("B-PER I-PER O B-LOC", {(0, 2, "PER"), (3, 4, "LOC")}),
        ("B-PER B-PER", {(0, 1, "PER"), (1, 2, "PER")}),
        ("I-PER I-PER", {(0, 2, "PER")}),
        ("B-PER I-LOC I-LOC", {(0, 1, "PER"), (1, 3, "LOC")}),
        ("O I-PER O I-PER", {(1, 2, "PER"), (3, 4, "PER")}),
    ],
)
def test_spans(tags: str, spans: set[tuple[int, int, str]]) -> None:
    assert spans_of(tags.split()) == spans


def test_an_entity_counts_if_type_and_ends_are_right() -> None:
    labels = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-ORG"], ["B-ORG", "I-ORG"]]
    assert entity_metrics(predicted, labels) == {"precision": 1 / 3, "recall": 1 / 3, "f1": 1 / 3}


def test_which_tags_mark_entities() -> None:
    assert are_bio(["O", "B-PER", "I-PER"]) and not are_bio(["NOUN", "VERB"]) and not are_bio(["O"])


def test_positions_without_a_label_do_not_count() -> None:
    logits = np.eye(3)[[[1, 2, 0, 2], [0, 0, 1, 1]]]  # (sentences, tokens, tags)
    labels = np.array([[1, -100, 0, -100], [0, 1, -100, -100]])
    found = tagging_metrics(["O", "B-X", "I-X"])(SimpleNamespace(predictions=logits, label_ids=labels))
    assert found == {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "accuracy": 0.75}
    found = tagging_metrics(["a", "b", "c"])(SimpleNamespace(predictions=(logits,), label_ids=labels))
    assert found == {"accuracy": 0.75}
