"""What a look at a classifier's predictions shows."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from burnish.core.errors import DataError
from burnish.evaluation.classifier_report import calibration_of, classifier_report
from burnish.evaluation.metrics import Metrics

DRAW = np.random.default_rng(0)
LOGITS, LABELS = DRAW.normal(size=(40, 3)).astype(np.float32), DRAW.integers(0, 3, 40)
NAMES = ["cat", "dog", "owl"]


def test_classes_agree_with_the_metrics() -> None:
    report = classifier_report(LOGITS, LABELS, NAMES)
    metrics = Metrics(["confusion_matrix", "precision_per_class", "recall_per_class", "f1_per_class"])
    metrics.update(LOGITS, LABELS)
    found = metrics.compute()
    assert report.confusion is not None and report.confusion.tolist() == found["confusion_matrix"]
    for name in ("precision", "recall", "f1"):
        assert [row[name] for row in report.classes] == pytest.approx(found[f"{name}_per_class"])
    assert [row["rows"] for row in report.classes] == np.bincount(LABELS).tolist()
    wrong = report.confusion.copy()
    np.fill_diagonal(wrong, 0)
    assert [row["confused_with"] for row in report.classes] == [NAMES[place] for place in wrong.argmax(1)]


def test_the_worst_rows_are_those_of_highest_loss() -> None:
    losses = torch.nn.functional.cross_entropy(torch.tensor(LOGITS), torch.tensor(LABELS), reduction="none").numpy()
    report = classifier_report(LOGITS, LABELS, NAMES, most_rows=5)
    order = np.argsort(-losses)[:5]
    assert [row["row"] for row in report.worst] == order.tolist()
    assert [row["loss"] for row in report.worst] == pytest.approx(losses[order], rel=1e-5)
    first = report.worst[0]
    assert first["label"] == NAMES[LABELS[order[0]]] and first["predicted"] == NAMES[LOGITS[order[0]].argmax()]
    assert first["probability_of_label"] == pytest.approx(np.exp(-first["loss"]))


def test_a_row_that_is_not_finite_is_the_worst() -> None:
    logits = LOGITS.copy()
    logits[7] = np.nan
    report = classifier_report(logits, LABELS, NAMES, most_rows=2)
    assert report.worst[0]["row"] == 7 and np.isnan(report.worst[0]["loss"])


def test_tokens() -> None:
    labels = np.where(np.arange(8) < 5, LABELS.reshape(5, 8), -100)
    report = classifier_report(LOGITS.reshape(5, 8, 3), labels, NAMES, most_rows=9)
    assert report.confusion is not None and report.confusion.sum() == 25
    assert len(report.worst) == 5 and all(row["position"] < 5 for row in report.worst)
    nothing = classifier_report(LOGITS.reshape(5, 8, 3), np.full((5, 8), -100), NAMES)
    assert nothing.worst == [] and np.isnan(nothing.calibration.error)


def test_several_labels_a_row() -> None:
    labels = (DRAW.random((40, 3)) > 0.5).astype(np.float32)
    report = classifier_report(LOGITS, labels, NAMES, most_rows=3)
    losses = torch.nn.functional.binary_cross_entropy_with_logits(
        torch.tensor(LOGITS), torch.tensor(labels), reduction="none"
    )
    assert report.confusion is None
    assert report.worst[0]["loss"] == pytest.approx(losses.mean(1).max().item(), rel=1e-5)
    metrics = Metrics(["f1_per_class"])
    metrics.update(LOGITS, labels)
    assert [row["f1"] for row in report.classes] == pytest.approx(metrics.compute()["f1_per_class"])


def test_calibration() -> None:
    """By hand: a bin with 0.95 of which all are right, one with 0.6 of which a quarter is."""
    found = calibration_of([0.95, 0.95, 0.6, 0.6, 0.6, 0.6], [True, True, True, False, False, False])
    assert found.error == pytest.approx((2 * 0.05 + 4 * 0.35) / 6)
    assert [(row["from"], row["to"], row["count"], row["right"]) for row in found.bins] == [
        (0.6, 0.7, 4, 0.25),
        (0.9, 1.0, 2, 1.0),
    ]
    assert calibration_of([1.0, 1.0], [True, True]).error == 0.0


@pytest.mark.slow
def test_calibration_agrees_with_torchmetrics() -> None:
    functional = pytest.importorskip("torchmetrics.functional.classification")
    expected = functional.multiclass_calibration_error(torch.tensor(LOGITS), torch.tensor(LABELS), 3, n_bins=10)
    assert classifier_report(LOGITS, LABELS).calibration.error == pytest.approx(expected.item(), rel=1e-5)


def test_files(tmp_path: Path) -> None:
    texts = [f'text "{number}", with a comma' for number in range(40)]
    report = classifier_report(LOGITS, LABELS, NAMES, most_rows=4)
    paths = report.write(tmp_path / "out", {"text": texts, "label": LABELS})
    assert {path.name for path in paths} == {
        *("classes.csv", "worst_rows.csv", "calibration.csv", "confusion_matrix.csv", "classifier_report.json")
    }
    with (tmp_path / "out" / "worst_rows.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == [texts[row["row"]] for row in report.worst]
    assert [row["label"] for row in rows] == [row["label"] for row in report.worst]
    content = json.loads((tmp_path / "out" / "classifier_report.json").read_text(encoding="utf-8"))
    assert content["expected_calibration_error"] == report.calibration.error
    assert len(content["classes"]) == 3 and content["confusion_matrix"][0]["label"] == "cat"


def test_what_does_not_go_together() -> None:
    with pytest.raises(DataError, match=r"float64 \(40, 3\) and int64 \(39,\)"):
        classifier_report(LOGITS, LABELS[:-1])
    with pytest.raises(DataError, match="3 scores a row, and 2 names"):
        classifier_report(LOGITS, LABELS, NAMES[:2])
