"""Predictions and labels of batches that are not to be joined: of boxes each image has its own number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .collect import as_array

Held = tuple[Any, "Sequence[int] | None"]


class BatchesApart:
    """Keeps what comes out for each batch as it is, on the host; a `Collector` for `eval_do_concat_batches=False`."""

    def __init__(self) -> None:
        self._batches: list[Held] = []

    def add(self, batch_outputs: Any, rows: Sequence[int] | None = None) -> None:
        """Adds what came out for one batch, and the numbers of its rows where they are known."""
        self._batches.append((on_host(batch_outputs), rows))

    def state(self) -> list[Held]:
        """All batches so far."""
        return self._batches

    def merge(self, states: Iterable[list[Held]]) -> None:
        """Adds the batches that others hold."""
        for state in states:
            self._batches += state

    def result(self) -> list[Any] | None:
        """What came out for each batch, in the order of the dataset where it is known; None where nothing did."""
        batches = self._batches
        if all(rows for _, rows in batches):
            batches = sorted(batches, key=lambda batch: min(batch[1] or (0,)))
        found = [outputs for outputs, _ in batches]
        return None if all(outputs is None for outputs in found) else found


def on_host(nested: Any) -> Any:
    """The same nesting with arrays in place of tensors; bfloat16 becomes float32."""
    if isinstance(nested, Mapping):
        return {key: on_host(value) for key, value in nested.items()}
    if isinstance(nested, (tuple, list)):
        return type(nested)(map(on_host, nested)) if not hasattr(nested, "_fields") else tuple(map(on_host, nested))
    return nested if nested is None else as_array(nested)
