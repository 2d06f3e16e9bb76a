"""Metrics of the built-in tasks, in numpy: functions of arrays, named as in the usual reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Metrics = dict[str, float]
IGNORED_LABEL = -100


def first_array(predictions: Any) -> np.ndarray:
    """The logits, where a model returns further arrays beside them."""
    return np.asarray(predictions[0] if isinstance(predictions, (tuple, list)) else predictions)


def single_label_metrics(predicted: np.ndarray, labels: np.ndarray, num_classes: int) -> Metrics:
    """Accuracy and F1; for two classes precision, recall and F1 of class 1, else the mean F1 of the classes.

    Args:
        predicted, labels: class numbers, shape (rows,).

    A class that is neither predicted nor present has no F1 and is left out of the mean.
    """
    matrix = np.zeros((num_classes, num_classes), dtype=np.int64)  # (label, predicted)
    np.add.at(matrix, (labels, predicted), 1)
    hits = np.diag(matrix)
    metrics = {"accuracy": float(hits.sum() / max(matrix.sum(), 1))}
    if num_classes == 2:
        metrics |= precision_recall_f1(int(hits[1]), int(matrix[:, 1].sum()), int(matrix[1].sum()))
    sizes = matrix.sum(0) + matrix.sum(1)
    present = sizes > 0
    macro = float(np.mean(2 * hits[present] / sizes[present])) if present.any() else 0.0
    return metrics | ({"macro_f1": macro} if num_classes == 2 else {"f1": macro})


def precision_recall_f1(num_hits: int, num_predicted: int, num_present: int) -> Metrics:
    """From counts; 0 where nothing was predicted or present."""
    return {
        "precision": num_hits / num_predicted if num_predicted else 0.0,
        "recall": num_hits / num_present if num_present else 0.0,
        "f1": 2 * num_hits / (num_predicted + num_present) if num_predicted + num_present else 0.0,
    }


def multi_label_metrics(predicted: np.ndarray, labels: np.ndarray) -> Metrics:
    """F1 over all labels of all rows, and the share of rows with every label right.

    Args:
        predicted, labels: bool, shape (rows, labels).
    """
    counts = int((predicted & labels).sum()), int(predicted.sum()), int(labels.sum())
    exact = float((predicted == labels).all(axis=1).mean())
    return {**precision_recall_f1(*counts), "subset_accuracy": exact}


def regression_metrics(predicted: np.ndarray, labels: np.ndarray) -> Metrics:
    """Errors, and the correlation and share of variance where they exist (neither side constant).

    Args:
        predicted, labels: floating point, shape (rows,).
    """
    predicted, labels = predicted.astype(np.float64), labels.astype(np.float64)
    gaps = predicted - labels
    metrics = {"mse": float(np.mean(gaps**2)), "mae": float(np.mean(np.abs(gaps)))}
    spread = np.var(labels)
    if spread > 0:
        metrics["r2"] = float(1 - np.mean(gaps**2) / spread)
        if np.var(predicted) > 0:
            metrics["pearson"] = float(np.corrcoef(predicted, labels)[0, 1])
    return metrics


def classification_metrics(problem_type: str, num_classes: int) -> Callable[[Any], Metrics]:
    """A `compute_metrics` for the logits of a classifier, shape (rows, classes) or (rows, 1)."""

    def compute_metrics(prediction: Any) -> Metrics:
        logits, labels = first_array(prediction.predictions), np.asarray(prediction.label_ids)
        if problem_type == "regression":
            return regression_metrics(logits.reshape(-1), labels.reshape(-1))
        if problem_type == "multi_label_classification":
            return multi_label_metrics(logits > 0, labels > 0.5)  # a logit of 0 is a probability of one half
        return single_label_metrics(logits.argmax(-1), labels, num_classes)

    return compute_metrics
