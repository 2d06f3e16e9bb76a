"""The evaluation loop: every row once, the loss a mean over targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch

from burnish.core.loss_terms import LossTerms
from burnish.core.protocols import Events
from burnish.core.types import Counts, Inputs, MicroBatch, are_rows_apart, rows_between

from .memory import as_a_whole


class NumberedInputs(NamedTuple):
    """A batch with the numbers of its rows in the dataset."""

    inputs: Any
    rows: tuple[int, ...]
    stands_in: bool = False
    """It is computed with others, in vain: nothing of it counts."""


PredictionStep = Callable[[Inputs], tuple[torch.Tensor | None, Any, Any]]
"""A batch to its mean loss, its logits and its labels; each may be None."""


class Gathering(Protocol):
    """Where outputs of batches are put together."""

    def add(self, batch_outputs: Any, rows: Sequence[int] | None = None) -> None:
        """One more batch, and the numbers of its rows where they are known."""
        ...

    def result(self) -> Any:
        """All batches together."""
        ...


@dataclass
class LossMean:
    """The mean loss over targets of all batches: a sum and a count, divided once."""

    total: float = 0.0
    targets: int = 0

    def add(self, loss: float, targets: int) -> None:
        self.total += loss * targets
        self.targets += targets

    @property
    def value(self) -> float | None:
        return self.total / self.targets if self.targets else None


@dataclass
class EvaluationLoop:
    """Puts batches through the model, one after the other.

    Args:
        predict: what is computed for a batch.
        count: rows and labels of a batch, on the host.
        mean_over: the count that the loss of a batch is a mean over.
        gather: by name ("predictions", "labels", "inputs", "losses"), where the outputs go.
        judge: told of each batch, as (inputs, logits, labels, loss).
        rows_apart: whether a row may be computed alone, to find those whose loss is not finite.
        main_input: which input is gathered as "inputs".
        terms: where `predict` leaves the named terms of the loss of a batch.
        rows_an_event: callbacks are told after so many rows, as if batches had them; None tells them of every batch.
        parts: a batch with its outputs, or its parts in order, where it does not fit into memory.
    """

    predict: PredictionStep
    count: Callable[[Inputs], Counts]
    mean_over: str
    events: Events
    gather: dict[str, Gathering] = field(default_factory=dict)
    judge: Callable[[Inputs, Any, Any, torch.Tensor | None], None] | None = None
    rows_apart: bool = False
    nonfinite_rows: list[int] = field(default_factory=list, init=False)
    """Numbers of the rows whose loss, or whose logits where there is none, are not finite; in the order of the batches
    where numbers in the dataset are not known. Of a batch whose rows cannot be told apart all."""
    preprocess: Callable[[Any, Any], Any] | None = None
    main_input: str = "input_ids"
    rows_an_event: int | None = None
    terms: LossTerms = field(default_factory=LossTerms)
    terms_seen: dict[str, LossMean] = field(default_factory=dict, init=False)
    """The mean of each term over the targets of the batches that had it."""
    parts: Callable[[PredictionStep, Any, int], Iterable[tuple[Any, Any]]] = as_a_whole

    def run(self, batches: Iterable[Any]) -> tuple[LossMean, int]:
        """The mean loss and the number of rows. What is gathered of a batch with row numbers is gathered with these."""
        mean, rows = LossMean(), 0
        self.terms.forget()
        for batch in batches:
            if isinstance(batch, NumberedInputs) and batch.stands_in:
                self.predict(batch.inputs)
                continue
            is_numbered = isinstance(batch, (MicroBatch, NumberedInputs))
            inputs, numbers = (batch.inputs, batch.rows) if is_numbered else (batch, None)
            rows_of_batch = self.count(inputs).rows
            seen, rows = rows, rows + rows_of_batch
            for part, outputs in self.parts(self.predict, inputs, rows_of_batch):
                counts = self.count(part)
                self._take(part, outputs, counts, mean, numbers and numbers[: counts.rows])
                self._find_nonfinite(part, outputs, counts, numbers or range(seen, seen + counts.rows))
                seen += counts.rows
                numbers = numbers and numbers[counts.rows :]
            self._tell(rows - rows_of_batch, rows)
        if self.rows_an_event is not None and rows % self.rows_an_event:
            self.events.fire("on_prediction_step")
        return mean, rows

    def _tell(self, before: int, rows: int) -> None:
        """Fires for a batch, or for each time that so many rows are done."""
        times = 1 if self.rows_an_event is None else rows // self.rows_an_event - before // self.rows_an_event
        for _ in range(times):
            self.events.fire("on_prediction_step")

    def _take(self, inputs: Any, outputs: Any, counts: Counts, mean: LossMean, numbers: Sequence[int] | None) -> None:
        loss, logits, labels = outputs
        targets = getattr(counts, self.mean_over)
        if loss is not None and targets > 0:  # a batch without targets has no loss: its mean would be 0 / 0
            mean.add(float(loss.mean()), targets)
            for name, value in self.terms.found.items():
                self.terms_seen.setdefault(name, LossMean()).add(float(value), targets)
        self.terms.forget()
        if self.preprocess is not None and logits is not None:
            logits = self.preprocess(logits, labels)
        if self.judge is not None:
            self.judge(inputs, logits, labels, loss)
        self._put("predictions", logits, numbers)
        self._put("labels", labels, numbers)
        if "inputs" in self.gather:
            self._put("inputs", inputs[self.main_input], numbers)
        if "losses" in self.gather and loss is not None:
            self._put("losses", loss.detach().mean().reshape(1).repeat(counts.rows), numbers)

    def _find_nonfinite(self, inputs: Any, outputs: Any, counts: Counts, numbers: Sequence[int]) -> None:
        loss, logits, _ = outputs
        if loss is None:
            self.nonfinite_rows += [numbers[row] for row in rows_with_nan(logits, counts.rows)]
        elif getattr(counts, self.mean_over) > 0 and not is_finite(loss):
            apart = self.rows_apart and are_rows_apart(inputs, counts.rows)
            alone = [rows_between(inputs, counts.rows, row, row + 1) for row in range(counts.rows)] if apart else []
            bad = [row for row, one in enumerate(alone) if not is_finite(self.predict(one)[0])]
            self.nonfinite_rows += [numbers[row] for row in bad or range(counts.rows)]

    def _put(self, name: str, value: Any, numbers: Sequence[int] | None) -> None:
        if name in self.gather:
            self.gather[name].add(value, numbers)


def is_finite(loss: torch.Tensor | None) -> bool:
    return loss is None or bool(torch.isfinite(loss).all())


def rows_with_nan(logits: Any, count: int) -> list[int]:
    """Places in the batch of the rows for which a model returned a NaN. Infinities may be meant: a class left out."""
    first = logits[0] if isinstance(logits, tuple) else logits
    if not isinstance(first, torch.Tensor) or not first.is_floating_point() or first.dim() == 0 or len(first) != count:
        return []
    rows: list[int] = first.isnan().reshape(count, -1).any(1).nonzero().flatten().tolist()
    return rows
