"""Metrics of classes: from how often each class was predicted, present, and both.

Definitions are those of scikit-learn with `zero_division=0`. A mean over classes is one over those that were predicted
or present. Where a row may have several labels, the classes are the labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from burnish.core.errors import SettingError

from .formula import Formula
from .reading import Classes, Reading
from .totals import Totals

AVERAGES = ("micro", "macro", "weighted", "per_class")


def hits(reading: Reading, predictions: Any, labels: Any) -> Totals:
    """How many rows or positions there are, and at how many the class, or all labels of a row, is right."""
    classes = reading.classes(predictions, labels)
    right = classes.predicted == classes.labels
    return {"right": int((right.all(-1) if classes.multi_label else right).sum()), "counted": len(right)}


def class_counts(reading: Reading, predictions: Any, labels: Any) -> Totals:
    """For each class how often it was predicted, present, and both: int64 (classes,)."""
    predicted, present, _ = classes = reading.classes(predictions, labels)
    if classes.multi_label:
        parts = predicted & present, predicted, present
        found = {name: part.sum(0) for name, part in zip(("both", "predicted", "present"), parts, strict=True)}
        return {**found, "rows": len(predicted), "rows_of_several": len(predicted)}
    occurrences = partial(np.bincount, minlength=_num_classes(classes))
    both = occurrences(predicted[predicted == present])
    found = {"both": both, "predicted": occurrences(predicted), "present": occurrences(present)}
    return {**found, "rows": len(predicted), "rows_of_several": 0}


def confusion(reading: Reading, predictions: Any, labels: Any) -> Totals:
    """int64 (class that is right, class predicted)."""
    predicted, present, _ = classes = reading.classes(predictions, labels)
    if classes.multi_label:
        raise SettingError("confusion_matrix is of single labels, and these rows may have several.")
    matrix = np.zeros(2 * (_num_classes(classes),), np.int64)
    np.add.at(matrix, (present, predicted), 1)
    return {"matrix": matrix}


def _num_classes(classes: Classes) -> int:
    """Those there are, or that are seen to be there."""
    return max(classes.num or 0, *(side.max(initial=-1) + 1 for side in (classes.predicted, classes.labels)))


def accuracy(totals: Mapping[str, Any]) -> float:
    return totals["right"] / totals["counted"] if totals["counted"] else math.nan


def _precision(both: Any, predicted: Any, present: Any) -> Any:
    return _share(both, predicted)


def _recall(both: Any, predicted: Any, present: Any) -> Any:
    return _share(both, present)


def _f1(both: Any, predicted: Any, present: Any) -> Any:
    return _share(2 * both, predicted + present)


def _share(part: Any, whole: Any) -> Any:
    """part / whole, and 0 where there is nothing."""
    return np.divide(part, whole, out=np.zeros(np.shape(whole)), where=np.asarray(whole) > 0)


def precision_recall_f1(both: int, predicted: int, present: int) -> dict[str, float]:
    """The three of one class, or of all together."""
    scores = {"precision": _precision, "recall": _recall, "f1": _f1}
    return {name: float(score(both, predicted, present)) for name, score in scores.items()}


def averaged(score: Callable[[Any, Any, Any], Any], average: str, totals: Mapping[str, Any]) -> Any:
    """A score over the classes: "micro", "macro", "weighted", "per_class" or "usual"."""
    counts = totals["both"], totals["predicted"], totals["present"]
    if average == "usual":
        average = "micro" if totals["rows_of_several"] else "second" if len(counts[0]) <= 2 else "macro"
    if average == "micro":
        return float(score(*(count.sum() for count in counts)))
    by_class = score(*counts)
    if average == "per_class":
        return by_class.tolist()
    if average == "second":
        return float(by_class[1]) if len(by_class) > 1 else 0.0
    there = counts[1] + counts[2] > 0
    if totals["rows_of_several"]:
        there = np.ones_like(there)  # each label is asked for in every row
    weights = counts[2] if average == "weighted" else there
    return float((by_class * weights).sum() / weights.sum()) if weights.sum() else 0.0


def balanced_accuracy(totals: Mapping[str, Any]) -> float:
    """The mean recall of the classes that are present."""
    there = totals["present"] > 0
    return float((totals["both"][there] / totals["present"][there]).mean()) if there.any() else math.nan


def matthews(totals: Mapping[str, Any]) -> float:
    """Matthews' correlation for any number of classes (Gorodkin, 2004); 0 where either side is constant."""
    if totals["rows_of_several"]:
        raise SettingError("mcc is of single labels, and these rows may have several.")
    rows, right = totals["rows"], int(totals["both"].sum())
    predicted, present = ([int(n) for n in totals[name]] for name in ("predicted", "present"))
    together = right * rows - sum(p * t for p, t in zip(predicted, present, strict=True))
    spread = (rows**2 - sum(p * p for p in predicted)) * (rows**2 - sum(t * t for t in present))
    return together / math.sqrt(spread) if spread else 0.0


def _means() -> dict[str, Formula]:
    found = {}
    for name, score in (("precision", _precision), ("recall", _recall), ("f1", _f1)):
        found[name] = Formula(class_counts, partial(averaged, score, "usual"), True)
        for average in AVERAGES:
            better = None if average == "per_class" else True
            found[f"{name}_{average}"] = Formula(class_counts, partial(averaged, score, average), better)
    return found


FORMULAS = {
    "accuracy": Formula(hits, accuracy, True),
    "token_accuracy": Formula(hits, accuracy, True),
    "balanced_accuracy": Formula(class_counts, balanced_accuracy, True),
    **_means(),
    "mcc": Formula(class_counts, matthews, True),
    "confusion_matrix": Formula(confusion, lambda totals: totals["matrix"].tolist(), None),
}
