"""What the tasks measure: names that exist, with the values that their reports have."""

from __future__ import annotations

import pytest
import torch

from burnish.evaluation.metrics import Metrics
from burnish.evaluation.reading import Reading
from burnish.tasks.metrics import are_bio, best_of, classification_metrics, tagging_metrics


@pytest.mark.parametrize(
    ("problem", "classes", "labels", "values"),
    [
        (
            "single_label_classification",
            2,
            torch.tensor([0, 1, 1]),
            {"accuracy", "precision", "recall", "f1", "f1_macro"},
        ),
        ("single_label_classification", 3, torch.tensor([0, 2, 1]), {"accuracy", "f1"}),
        ("multi_label_classification", 2, torch.ones(3, 2), {"precision", "recall", "f1", "subset_accuracy"}),
        ("regression", 1, torch.tensor([0.5, 1.0, 2.0]), {"mse", "mae", "r2", "pearson"}),
    ],
)  # fmt: skip
def test_classification(problem: str, classes: int, labels: torch.Tensor, values: set[str]) -> None:
    metrics = Metrics(classification_metrics(problem, classes))
    metrics.update(torch.eye(3)[:, :classes], labels)
    assert set(metrics.compute()) == values


def test_tagging() -> None:
    assert are_bio(["O", "B-PER", "I-PER"]) and not are_bio(["NOUN", "VERB"]) and not are_bio(["O"])
    for names, values in ((["O", "B-X", "I-X"], {"precision", "recall", "f1", "accuracy"}), ("abc", {"accuracy"})):
        metrics = Metrics(tagging_metrics(names), Reading(class_names=list(names)))
        metrics.update(torch.eye(3)[None], torch.tensor([[0, 1, -100]]))
        assert set(metrics.compute()) == values


@pytest.mark.parametrize(
    ("asked", "usual", "best"),
    [
        ([], "f1", "f1"),
        (["accuracy", "f1"], "f1", "f1"),
        (["mcc", "accuracy"], "f1", "mcc"),
        (["confusion_matrix", "roc_auc"], "f1", "roc_auc"),
        (["confusion_matrix"], "f1", "f1"),
        (["seqeval"], "accuracy", "f1"),
        (["rouge", "bleu"], "accuracy", "rougeL"),
        (["bleu"], "loss", "loss"),
    ],
)
def test_what_tells_the_best(asked: list[str], usual: str, best: str) -> None:
    assert best_of(asked, usual) == best
