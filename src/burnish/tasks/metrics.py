"""What the built-in tasks measure: names of metrics (docs/metrics.md), unless a user names others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .labels import MULTI_LABEL, REGRESSION


def classification_metrics(problem_type: str, num_classes: int) -> list[str]:
    """Of classes: accuracy and F1; for two precision, recall and F1 of class 1, for more the mean F1 of the classes.
    Of several labels a row: F1 over all labels, and the share of rows with every label right. Of numbers: errors, the
    share of variance and the correlation, NaN where they do not exist (one side is constant)."""
    if problem_type == REGRESSION:
        return ["mse", "mae", "r2", "pearson"]
    if problem_type == MULTI_LABEL:
        return ["precision", "recall", "f1", "subset_accuracy"]
    if num_classes == 2:
        return ["accuracy", "precision", "recall", "f1", "f1_macro"]
    return ["accuracy", "f1"]


def tagging_metrics(names: Sequence[str]) -> list[str]:
    """Of words: accuracy, and precision, recall and F1 of entities where the tags mark these."""
    return ["seqeval"] if are_bio(names) else ["accuracy"]


def are_bio(names: Iterable[str]) -> bool:
    """Whether tags mark spans: "O", "B-type" and "I-type", and at least one of the latter."""
    given = list(names)
    return any(name != "O" for name in given) and all(name == "O" or name[:2] in ("B-", "I-") for name in given)


def best_of(asked: Sequence[str], usual: str | None) -> str | None:
    """What tells the best checkpoint: what the task usually goes by, where that is measured, else the first one asked
    for. Metrics of several values are named by one of these."""
    from burnish.evaluation.metrics import formula_of

    if not asked or usual == "loss":
        return usual
    values = [MAIN_VALUE.get(name, name) for name in asked if formula_of(name).greater_is_better is not None]
    return usual if usual in values or not values else values[0]


MAIN_VALUE = {"seqeval": "f1", "rouge": "rougeL"}
