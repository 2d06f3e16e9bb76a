"""A look at a classifier's predictions: confusion matrix, a table of the classes, the worst rows, calibration."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from burnish.core.errors import DataError
from burnish.core.types import IGNORED_LABEL

from .classes import precision_recall_f1
from .reading import Array, shapes_of
from .row_losses import highest

Rows = list[dict[str, Any]]


class Calibration(NamedTuple):
    """How well probabilities say how often a prediction is right."""

    error: float
    """Expected calibration error: the mean, over predictions, of the gap between the mean confidence of their bin and
    the share of it that is right (Guo et al., 2017); from 0 to 1, lower is better."""
    bins: Rows
    """For each bin that has predictions: from, to, count, confidence (mean), right (share)."""


@dataclass(frozen=True)
class ClassifierReport:
    """What is worth looking at. For several labels a row a class is a label, and the confusion matrix is None."""

    names: list[str]
    confusion: Array | None
    """int64 (class that is right, class predicted)."""
    classes: Rows
    """For each class: name, rows (that have it), predicted, precision, recall, f1, confused_with (the class it is most
    often taken for, or "")."""
    worst: Rows
    """The rows of highest loss, the highest first: row (number in the dataset), loss (nats), label, predicted,
    probability (of what was predicted), probability_of_label."""
    calibration: Calibration

    def write(self, folder: Path, columns: Mapping[str, Sequence[Any]] | None = None) -> list[Path]:
        """Writes classes.csv, worst_rows.csv, calibration.csv, confusion_matrix.csv where there is one, and all of it
        as classifier_report.json.

        Args:
            columns: columns of the dataset, such as its texts, to stand beside the worst rows.
        """
        folder.mkdir(parents=True, exist_ok=True)
        further = {name: values for name, values in (columns or {}).items() if name not in self.worst_columns}
        worst = [{**row, **{name: values[row["row"]] for name, values in further.items()}} for row in self.worst]
        tables = {"classes": self.classes, "worst_rows": worst, "calibration": self.calibration.bins}
        if self.confusion is not None:
            tables["confusion_matrix"] = [
                {"label": name, **dict(zip(self.names, row, strict=True))}
                for name, row in zip(self.names, self.confusion.tolist(), strict=True)
            ]
        paths = [_written(folder / f"{name}.csv", rows) for name, rows in tables.items() if rows]
        content = {**tables, "expected_calibration_error": self.calibration.error}
        path = folder / "classifier_report.json"
        path.write_text(json.dumps(_without_nan(content), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return [*paths, path]

    @property
    def worst_columns(self) -> set[str]:
        """Names that the table of the worst rows has of its own."""
        return set(self.worst[0]) if self.worst else set()


def classifier_report(
    logits: Any, labels: Any, names: Sequence[str] | None = None, most_rows: int = 50, bins: int = 10
) -> ClassifierReport:
    """Looks at what `Trainer.predict` returns for a classifier.

    Args:
        logits: (rows, classes), or (rows, length, classes) for tokens.
        labels: (rows,), or (rows, length) with -100 at positions that do not count; or floating point (rows, labels)
            where a row may have several labels.
        names: of the classes, such as ``model.config.id2label.values()``.
        most_rows: worst rows to list.
        bins: of equal width, for the calibration.

    Raises:
        DataError: the shapes do not go together, or there are more classes than names.
    """
    scores, truth = np.asarray(logits, np.float64), np.asarray(labels)
    several = scores.shape == truth.shape and scores.ndim == 2 and truth.dtype.kind == "f"
    if not several and scores.shape[:-1] != truth.shape:
        raise DataError(
            f"A score for each class of each label is needed, not {shapes_of(scores)} and {shapes_of(truth)}."
        )
    called = list(map(str, names)) if names is not None else [str(number) for number in range(scores.shape[-1])]
    if len(called) != scores.shape[-1]:
        raise DataError(f"There are {scores.shape[-1]} scores a row, and {len(called)} names of classes.")
    return (_of_several if several else _of_single)(scores, truth, called, most_rows, bins)


def calibration_of(confidence: Any, right: Any, bins: int = 10) -> Calibration:
    """The expected calibration error, and the bins that it is made of.

    Args:
        confidence: probabilities, (predictions,).
        right: whether each came true, (predictions,).
        bins: of equal width between 0 and 1.
    """
    confidence, right = np.asarray(confidence, np.float64), np.asarray(right, bool)
    kept = np.isfinite(confidence)
    confidence, right = confidence[kept], right[kept]
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    rows, error = [], 0.0
    for number in range(bins):
        inside = place == number
        if inside.any():
            mean, share = float(confidence[inside].mean()), float(right[inside].mean())
            error += abs(mean - share) * int(inside.sum()) / len(confidence)
            limits = {"from": number / bins, "to": (number + 1) / bins}
            rows.append({**limits, "count": int(inside.sum()), "confidence": mean, "right": share})
    return Calibration(error if rows else float("nan"), rows)


def _of_single(scores: Array, truth: Array, names: list[str], most_rows: int, bins: int) -> ClassifierReport:
    counted = truth != IGNORED_LABEL
    log_p = torch.tensor(scores).log_softmax(-1).numpy()
    right = np.where(counted, truth, 0).astype(int)
    losses = -np.take_along_axis(log_p, right[..., None], -1)[..., 0]
    predicted = log_p.argmax(-1)
    confusion = np.zeros((len(names), len(names)), np.int64)
    np.add.at(confusion, (truth[counted].astype(int), predicted[counted]), 1)
    confidence = np.exp(log_p.max(-1))
    worst = []
    for row in _highest(_row_losses(losses, counted), most_rows):
        place = (row, *_worst_position(losses[row], counted[row]))
        said = {"row": int(row), "loss": float(losses[place])}
        if len(place) > 1:
            said["position"] = int(place[1])
        said |= {"label": names[right[place]], "predicted": names[predicted[place]]}
        worst.append(
            {**said, "probability": float(confidence[place]), "probability_of_label": float(np.exp(-losses[place]))}
        )
    calibration = calibration_of(confidence[counted], (predicted == truth)[counted], bins)
    return ClassifierReport(names, confusion, class_table(confusion, names), worst, calibration)


def _of_several(scores: Array, truth: Array, names: list[str], most_rows: int, bins: int) -> ClassifierReport:
    has, says = truth > 0.5, scores > 0
    probability = 1 / (1 + np.exp(-np.clip(scores, -700, 700)))
    losses = np.logaddexp(0, np.where(has, -scores, scores)).mean(-1)
    worst = [
        {
            **{"row": int(row), "loss": float(losses[row])},
            **{"label": _listed(names, has[row]), "predicted": _listed(names, says[row])},
        }
        for row in _highest(losses, most_rows)
    ]
    both, predicted, present = ((has & says).sum(0), says.sum(0), has.sum(0))
    classes = [
        _class_row(name, *map(int, counts)) for name, *counts in zip(names, both, predicted, present, strict=True)
    ]
    return ClassifierReport(names, None, classes, worst, calibration_of(probability.ravel(), has.ravel(), bins))


def class_table(confusion: Array, names: Sequence[str]) -> Rows:
    """Precision, recall and F1 of each class, and which class it is most often taken for."""
    rows = []
    for number, name in enumerate(names):
        wrong = confusion[number].copy()
        wrong[number] = 0
        row = _class_row(
            name, *map(int, (confusion[number, number], confusion[:, number].sum(), confusion[number].sum()))
        )
        rows.append({**row, "confused_with": names[int(wrong.argmax())] if wrong.any() else ""})
    return rows


def _class_row(name: str, both: int, predicted: int, present: int) -> dict[str, Any]:
    scores = precision_recall_f1(both, predicted, present)
    return {"class": name, "rows": present, "predicted": predicted, **scores}


def _row_losses(losses: Array, counted: Array) -> Array:
    """The loss of each row, of its worst position where it has several; -inf where nothing counts."""
    kept: Array = np.where(counted, losses, -np.inf)
    worst: Array = kept.reshape(len(kept), -1).max(1, initial=-np.inf) if kept.ndim > 1 else kept
    return worst


def _worst_position(losses: Array, counted: Array) -> tuple[int, ...]:
    if losses.ndim == 0:
        return ()
    return (int(np.where(counted, np.where(np.isnan(losses), np.inf, losses), -np.inf).argmax()),)


def _highest(losses: Array, most: int) -> list[int]:
    """Places of the highest, NaN above all; none of -inf."""
    return [place for place in highest(losses, most) if losses[place] != -np.inf]


def _listed(names: Sequence[str], has: Array) -> str:
    return ", ".join(name for name, there in zip(names, has, strict=True) if there)


def _written(path: Path, rows: Rows) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: null stands for it."""
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _without_nan(part) for key, part in value.items()}
    return (
        [_without_nan(part) for part in value] if isinstance(value, Iterable) and not isinstance(value, str) else value
    )
