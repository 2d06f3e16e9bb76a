"""`compute_metrics` in all its forms: names, objects of other libraries, functions of everything or of each batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from burnish.core.errors import SettingError

from .foreign import EvaluateModule, TorchMetric, is_evaluate_module, is_torchmetric
from .metrics import Metrics, formula_of
from .names import plain_numbers
from .prediction import EvalPrediction
from .reading import Reading, shapes_of


class Scorer(Protocol):
    """Metrics that are updated batch by batch and merged over processes."""

    def update(self, predictions: Any, labels: Any) -> None: ...

    def state(self) -> Any: ...

    def merge(self, states: Iterable[Any]) -> None: ...

    def compute(self) -> Mapping[str, Any]: ...


def checked(compute_metrics: Any, argument: str = "compute_metrics") -> Any:
    """What a user gave as `argument`, as it is.

    Raises:
        SettingError: a name is unknown, or something is neither a name, a metric nor a function.
    """
    for one in _several(compute_metrics):
        if isinstance(one, str):
            formula_of(one, argument)
        elif not callable(one) and not is_evaluate_module(one):
            raise SettingError(
                f"{argument} takes names of metrics, functions, and metrics of torchmetrics or evaluate, not "
                f"{type(one).__name__}."
            )
    return compute_metrics


class Judge:
    """Computes the metrics of one evaluation.

    Args:
        compute_metrics: a name, a function, an object of torchmetrics or `evaluate`, or several of them.
        reading: how batches are read by those that are no functions.
        by_batch: whether functions are called with each batch, as ``function(prediction, compute_result=…)``, true with
            the last (`batch_eval_metrics`).
        as_one: these are then called once, with all rows as one batch.
    """

    def __init__(self, compute_metrics: Any, reading: Reading, by_batch: bool = False, as_one: bool = False) -> None:
        given = _several(checked(compute_metrics))
        names = [one for one in given if isinstance(one, str)]
        self._scorers: list[Scorer] = [Metrics(names, reading)] if names else []
        self._functions: list[Callable[..., Any]] = []
        for one in given:
            if is_torchmetric(one):
                self._scorers.append(TorchMetric(one, reading))
            elif is_evaluate_module(one):
                self._scorers.append(EvaluateModule(one, reading))
            elif not isinstance(one, str):
                self._functions.append(one)
        self._by_batch, self._as_they_come = by_batch, by_batch and not as_one
        self._held: EvalPrediction | None = None

    @property
    def needs_everything(self) -> bool:
        """Whether predictions and labels of all rows have to be gathered."""
        return bool(self._functions) and not self._as_they_come

    def update(self, prediction: EvalPrediction) -> None:
        """Adds a batch, whose arrays are tensors where they were computed."""
        for scorer in self._scorers:
            with _named(scorer, prediction):
                scorer.update(prediction.predictions, prediction.label_ids)
        if self._as_they_come and self._functions:
            if self._held is not None:
                self._call(self._held, compute_result=False)
            self._held = prediction  # which is the last is known afterwards

    def state(self) -> list[Any]:
        """What is remembered of the batches, to be merged in another process."""
        return [scorer.state() for scorer in self._scorers]

    def merge(self, states: Iterable[list[Any]]) -> None:
        """Adds what the same metrics remembered elsewhere."""
        for state in states:
            for scorer, of_scorer in zip(self._scorers, state, strict=True):
                scorer.merge([of_scorer])

    def compute(self, everything: EvalPrediction | None = None) -> dict[str, Any]:
        """The metrics, as plain numbers and lists.

        Args:
            everything: all rows, for functions that need them; None where these have no predictions or labels.

        Raises:
            SettingError: a metric could not be computed, or two have one name.
        """
        parts = [scorer.compute() for scorer in self._scorers]
        prediction = self._held if self._as_they_come else everything
        self._held = None
        if prediction is not None:
            parts += self._call(prediction, **({"compute_result": True} if self._by_batch else {}))
        found: dict[str, Any] = {}
        for part in map(plain_numbers, parts):
            twice = found.keys() & part.keys()
            if twice:
                raise SettingError(f"compute_metrics: two metrics are called {min(twice)!r}. Take one of them out.")
            found |= part
        return found

    def _call(self, prediction: EvalPrediction, **settings: bool) -> list[Any]:
        found = []
        for function in self._functions:
            with _named(function, prediction):
                found.append(function(prediction, **settings))
        return found


@contextlib.contextmanager
def _named(metric: Any, prediction: EvalPrediction) -> Iterator[None]:
    """Errors inside say which metric failed, and on what."""
    try:
        yield
    except Exception as error:
        if isinstance(metric, Metrics):
            raise  # names say it themselves
        name = getattr(metric, "__name__", type(metric).__name__)
        given, labels = shapes_of(prediction.predictions), shapes_of(prediction.label_ids)
        raise SettingError(
            f"compute_metrics: {name} raised {type(error).__name__}: {error}. It was given predictions {given} and "
            f"labels {labels}."
        ) from error


def _several(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, (list, tuple)) else [given]
