"""Metrics by name: several at once, updated batch by batch, merged over processes without loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from burnish.core.errors import SettingError, did_you_mean

from . import classes, language, ranking, regression, tagging, text_overlap
from .formula import Formula
from .reading import Reading, shapes_of
from .totals import Totals, add

FORMULAS: dict[str, Formula] = {
    **classes.FORMULAS,
    **ranking.FORMULAS,
    **regression.FORMULAS,
    **tagging.FORMULAS,
    **language.FORMULAS,
    **text_overlap.FORMULAS,
}
"""The metrics that are known by name."""

ALSO_CALLED = {
    "acc": "accuracy",
    "subset_accuracy": "accuracy",
    "macro_f1": "f1_macro",
    "micro_f1": "f1_micro",
    "weighted_f1": "f1_weighted",
    "matthews_correlation": "mcc",
    "auc": "roc_auc",
    "auroc": "roc_auc",
    "pearsonr": "pearson",
    "spearmanr": "spearman",
}
"""Other usual names. A value has the name that was asked for."""


def formula_of(name: str, argument: str = "compute_metrics") -> Formula:
    """The metric of this name. Raises `SettingError` that names the argument and lists the known ones."""
    known = ALSO_CALLED.get(name, name)
    if known not in FORMULAS:
        near = did_you_mean(name, [*FORMULAS, *ALSO_CALLED])
        of_script = " Or give a function, and set greater_is_better where it is to decide which model is best."
        raise SettingError(
            f"{argument}={name!r} is no metric that is known by name.{near} Known: {', '.join(sorted(FORMULAS))}."
            f"{'' if argument.startswith('--') else of_script}"
        )
    return FORMULAS[known]


class Metrics:
    """Several metrics of the same rows.

    ``update`` with each batch, then ``compute``. What is remembered in between are sums, so that neither the order of
    rows nor how they are shared out over batches and processes matters: the values are the same to the last digit.

    Args:
        names: names of `FORMULAS`.
        reading: how batches are read; by default as logits and class numbers.

    Raises:
        SettingError: a name is unknown.
    """

    def __init__(self, names: Iterable[str], reading: Reading | None = None) -> None:
        self._formulas = {name: formula_of(name) for name in names}
        self._reading = reading or Reading()
        self._totals: dict[int, Totals] = {}
        """By the place of the first metric that has them: metrics may have the same totals."""

    def update(self, predictions: Any, labels: Any) -> None:
        """Adds a batch.

        Args:
            predictions: scores, class numbers, values or ids, (rows, …), as a tensor or array; of several outputs, in a
                tuple, the first is taken. For metrics of texts also a list of strings.
            labels: (rows, …); positions with -100 do not count. For metrics of texts also strings, or lists of them.

        Raises:
            SettingError: a metric cannot be computed of these; the message names it and the shapes.
        """
        for place, (name, formula) in self._distinct().items():
            try:
                more = formula.totals(self._reading, predictions, labels)
            except Exception as error:
                raise _cannot(name, predictions, labels, error) from error
            add(self._totals.setdefault(place, {}), more)
        self._reading.forget()

    def state(self) -> dict[int, Totals]:
        """What is remembered, to be merged elsewhere: numbers of Python and numpy in dicts, tuples and lists."""
        return self._totals

    def merge(self, states: Iterable[Mapping[int, Totals]]) -> None:
        """Adds what was remembered elsewhere, by metrics of the same names."""
        for state in states:
            for place, totals in state.items():
                add(self._totals.setdefault(place, {}), totals)

    def compute(self) -> dict[str, Any]:
        """The values by name; none where there was no batch."""
        if not self._totals:
            return {}
        found: dict[str, Any] = {}
        for name, formula in self._formulas.items():
            value = formula.value(self._totals[self._place(formula)])
            for key, number in (value if isinstance(value, dict) else {name: value}).items():
                if key in found:
                    raise SettingError(f"Two of the metrics {', '.join(self._formulas)} are called {key!r}.")
                found[key] = number
        return found

    def _place(self, formula: Formula) -> int:
        return [other.totals for other in self._formulas.values()].index(formula.totals)

    def _distinct(self) -> dict[int, tuple[str, Formula]]:
        """The first metric of those that have the same totals."""
        found: dict[int, tuple[str, Formula]] = {}
        for name, formula in self._formulas.items():
            found.setdefault(self._place(formula), (name, formula))
        return found


def _cannot(name: str, predictions: Any, labels: Any, error: Exception) -> SettingError:
    said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return SettingError(
        f"compute_metrics: {name!r} cannot be computed of predictions {shapes_of(predictions)} and labels "
        f"{shapes_of(labels)}. {said}"
    )
