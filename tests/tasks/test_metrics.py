from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from burnish.tasks.metrics import classification_metrics, multi_label_metrics, regression_metrics, single_label_metrics

sklearn = pytest.importorskip("sklearn.metrics")
DRAW = np.random.default_rng(0)


def test_two_classes_agree_with_sklearn() -> None:
    predicted, labels = DRAW.integers(0, 2, 50), DRAW.integers(0, 2, 50)
    found = single_label_metrics(predicted, labels, 2)
    assert found["accuracy"] == pytest.approx(sklearn.accuracy_score(labels, predicted))
    expected = sklearn.precision_recall_fscore_support(labels, predicted, average="binary")
    assert [found[name] for name in ("precision", "recall", "f1")] == pytest.approx(expected[:3])
    assert found["macro_f1"] == pytest.approx(sklearn.f1_score(labels, predicted, average="macro"))


def test_more_classes_agree_with_sklearn() -> None:
    predicted, labels = DRAW.integers(0, 4, 50), DRAW.integers(0, 3, 50)
    found = single_label_metrics(predicted, labels, 6)  # class 5 never occurs, class 3 is only predicted
    assert found["f1"] == pytest.approx(sklearn.f1_score(labels, predicted, average="macro"))


def test_several_labels_agree_with_sklearn() -> None:
    predicted, labels = DRAW.random((40, 3)) > 0.5, DRAW.random((40, 3)) > 0.7
    found = multi_label_metrics(predicted, labels)
    assert found["f1"] == pytest.approx(sklearn.f1_score(labels, predicted, average="micro"))
    assert found["subset_accuracy"] == pytest.approx(sklearn.accuracy_score(labels, predicted))


def test_regression_agrees_with_sklearn() -> None:
    labels = DRAW.random(30).astype(np.float32)
    predicted = labels + DRAW.normal(0, 0.2, 30).astype(np.float32)
    found = regression_metrics(predicted, labels)
    assert found["mse"] == pytest.approx(sklearn.mean_squared_error(labels, predicted), rel=1e-5)
    assert found["mae"] == pytest.approx(sklearn.mean_absolute_error(labels, predicted), rel=1e-5)
    assert found["r2"] == pytest.approx(sklearn.r2_score(labels, predicted), rel=1e-4)
    assert found["pearson"] == pytest.approx(np.corrcoef(labels, predicted)[0, 1], rel=1e-5)


def test_what_does_not_exist_is_not_reported() -> None:
    assert set(regression_metrics(np.ones(3), np.ones(3))) == {"mse", "mae"}
    assert "pearson" not in regression_metrics(np.ones(3), np.arange(3.0))


def test_logits_become_predictions() -> None:
    labels = np.array([1, 0])
    logits = np.array([[0.0, 2.0], [3.0, 1.0]])
    compute = classification_metrics("single_label_classification", 2)
    assert compute(SimpleNamespace(predictions=(logits, "states"), label_ids=labels))["accuracy"] == 1
    compute = classification_metrics("multi_label_classification", 2)
    switched = SimpleNamespace(predictions=np.array([[1.0, -1.0]]), label_ids=np.array([[1.0, 0.0]]))
    assert compute(switched)["subset_accuracy"] == 1
    compute = classification_metrics("regression", 1)
    assert compute(SimpleNamespace(predictions=np.array([[1.0], [2.0]]), label_ids=np.array([1.0, 3.0])))["mse"] == 0.5
