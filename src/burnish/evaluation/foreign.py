"""Metrics of other libraries: objects of torchmetrics, modules of `evaluate`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from burnish.core.errors import SettingError

from .reading import Reading

WITH_SEVERAL_REFERENCES = ("bleu", "sacre_bleu", "chrf", "ter", "rouge", "eed")
"""Modules of torchmetrics.text that take a list of right texts for each row."""


def is_torchmetric(given: Any) -> bool:
    """Whether it is a metric, or a collection of them, of torchmetrics. Does not import it."""
    return _is_of(given, "torchmetrics")


def is_evaluate_module(given: Any) -> bool:
    """Whether it is a module, or a combination of them, of the library `evaluate`. Does not import it."""
    return _is_of(given, "evaluate")


def _is_of(given: Any, package: str) -> bool:
    return any(kind.__module__.partition(".")[0] == package for kind in type(given).__mro__)


class TorchMetric:
    """A copy of a metric or collection of torchmetrics, given batches in the form that its kind takes.

    Those of regression get numbers, those of text strings (perplexity: scores), others scores at every row or position
    that has a label, and the labels; binary ones get the probability of class 1.
    """

    def __init__(self, metric: Any, reading: Reading) -> None:
        self._metric, self._reading = metric.clone(), reading
        self._metric.reset()
        members = list(metric.values()) if hasattr(metric, "values") else [metric]
        self._member = members[0]
        self._updated = False

    def update(self, predictions: Any, labels: Any) -> None:
        found, truth = self._read(predictions, labels)
        if isinstance(found, torch.Tensor):
            self._metric = self._metric.to(found.device)
        self._metric.update(found, truth)
        self._updated = True

    def state(self) -> Any:
        """The metric itself, which torchmetrics merges with others of its kind."""
        return self._metric.cpu()

    def merge(self, states: Iterable[Any]) -> None:
        ours = dict(self._metric.items()) if hasattr(self._metric, "items") else {"": self._metric}
        for state in states:
            theirs = dict(state.items()) if hasattr(state, "items") else {"": state}
            for name, metric in ours.items():
                # is about forward() alone, and stands in the way of a merge that is what torchmetrics' own sync does
                vars(metric)["full_state_update"] = False
                metric.merge_state(theirs[name])
                metric.sync_on_compute = False
        self._updated = True

    def compute(self) -> Mapping[str, Any]:
        if not self._updated:
            return {}
        found = self._metric.compute()
        return found if isinstance(found, Mapping) else {_in_words(type(self._metric).__name__): found}

    def _read(self, predictions: Any, labels: Any) -> tuple[Any, Any]:
        room = type(self._member).__module__.split(".")
        if "regression" in room:
            found, truth = (torch.as_tensor(side) for side in self._reading.values(predictions, labels))
            return (found[:, 0], truth[:, 0]) if found.shape[1] == 1 else (found, truth)
        if "text" in room and room[-1] != "perplexity":
            written, right = self._reading.texts(predictions, labels)
            return written, right if room[-1] in WITH_SEVERAL_REFERENCES else [texts[0] for texts in right]
        classes = self._reading.classes(predictions, labels)
        if classes.multi_label:
            return torch.as_tensor(predictions), torch.as_tensor(labels).to(torch.int64)
        if classes.num is None or not torch.as_tensor(predictions).is_floating_point():
            return torch.as_tensor(classes.predicted), torch.as_tensor(classes.labels)
        scores, targets = self._reading.targets(predictions, labels)
        if room[-1] == "perplexity":
            return scores[None], targets[None]
        if type(self._member).__name__.startswith("Binary"):
            return (scores.softmax(-1)[:, 1] if scores.shape[1] == 2 else scores[:, 0].sigmoid()), targets
        return scores, targets


class EvaluateModule:
    """A module of `evaluate`, which is given classes, numbers, texts or tags as its features ask for.

    Its rows are kept in that form, not as scores, until the end.
    """

    def __init__(self, module: Any, reading: Reading) -> None:
        self._module, self._reading = module, reading
        self._rows: dict[str, list[Any]] = {"predictions": [], "references": []}

    def update(self, predictions: Any, labels: Any) -> None:
        found, truth = self._read(predictions, labels)
        self._rows["predictions"].extend(found)
        self._rows["references"].extend(truth)

    def state(self) -> dict[str, list[Any]]:
        return self._rows

    def merge(self, states: Iterable[Mapping[str, list[Any]]]) -> None:
        for state in states:
            for name, rows in state.items():
                self._rows[name] = [*self._rows[name], *rows]

    def compute(self) -> Mapping[str, Any]:
        if not self._rows["predictions"]:
            return {}
        found: Mapping[str, Any] = self._module.compute(**self._rows)
        return found

    def _read(self, predictions: Any, labels: Any) -> tuple[list[Any], list[Any]]:
        forms = self._forms()
        inner, listed = _innermost(forms[0]["predictions"])
        if inner.startswith("float"):
            found, truth = self._reading.values(predictions, labels)
            return (found.tolist(), truth.tolist()) if listed else (found[:, 0].tolist(), truth[:, 0].tolist())
        if inner == "string" and listed:
            names = self._reading.class_names
            if not names:
                raise SettingError(f"{self._module.name} needs the names of the tags: set id2label in the config.")
            rows = self._reading.rows_of_classes(predictions, labels)
            return [[names[tag] for tag in row] for row, _ in rows], [[names[tag] for tag in row] for _, row in rows]
        if inner == "string":
            written, right = self._reading.texts(predictions, labels)
            one_each = any(not _innermost(form["references"])[1] for form in forms)
            return written, [texts[0] for texts in right] if one_each else right
        classes = self._reading.classes(predictions, labels)
        return classes.predicted.astype(int).tolist(), classes.labels.astype(int).tolist()

    def _forms(self) -> list[Any]:
        """The features that it takes; of a combination those of its first module."""
        module = getattr(self._module, "evaluation_modules", [self._module])[0]
        features = module.features
        return features if isinstance(features, list) else [features]


def _innermost(feature: Any) -> tuple[str, bool]:
    """The type of the numbers or strings in a feature, and whether a row has a list of them."""
    listed = False
    while not hasattr(feature, "dtype") or hasattr(feature, "feature"):
        listed = True
        feature = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
        if feature is None or isinstance(feature, dict):
            raise SettingError("This module of evaluate takes rows of a form of its own: call it in a function.")
    return str(feature.dtype), listed


def _in_words(name: str) -> str:
    """ "MulticlassF1Score" as "multiclass_f1_score"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
