"""What a function that computes metrics is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class EvalPrediction:
    """Predictions and labels of an evaluation, in dataset order, by name or by position.

    ``predictions, label_ids = prediction`` works as it does with transformers; inputs and losses follow where they were
    asked for (``include_for_metrics``). Each is an array of shape (examples, ...) or a nesting of such arrays.
    """

    predictions: Any
    label_ids: Any
    inputs: Any = None
    losses: Any = None

    @property
    def elements(self) -> tuple[Any, ...]:
        further = tuple(element for element in (self.inputs, self.losses) if element is not None)
        return (self.predictions, self.label_ids, *further)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements)

    def __getitem__(self, position: int) -> Any:
        return self.elements[position]

    def __len__(self) -> int:
        return len(self.elements)
