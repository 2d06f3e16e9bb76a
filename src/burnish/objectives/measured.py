"""What a loss is a mean over: measured on two examples, not guessed from a signature.

A mean loss over a batch made of parts a and b is (w(a) loss(a) + w(b) loss(b)) / (w(a) + w(b)), where w counts what the
mean is over: rows, labels, or labels that are predicted from the position before. Which count makes the equation
true shows how losses of micro-batches add up; if none does, the rows of a batch interact and it must stay whole.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from burnish.core.divided import division_of
from burnish.core.modes import in_evaluation
from burnish.core.randomness import kept, seed_all
from burnish.core.types import Counts, MicroBatch


@dataclass(frozen=True)
class Finding:
    """What a measurement showed. `mean_over` is a field of `Counts`, or None where no count explains the loss."""

    mean_over: str | None
    settled: bool
    """False where the examples could not tell the candidates apart; `mean_over` is then what was expected."""


def measure(a: float, b: float, both: float, of_a: Counts, of_b: Counts, expected: str, tolerance: float) -> Finding:
    """Finds the count that a loss is a mean over: the one that explains it best. `expected` wins where it is as good.

    Args:
        a, b, both: losses of two examples alone and of the two as one batch, without any random draw.
        of_a, of_b: what each of the two holds.
        tolerance: greatest relative difference that counts as rounding.
    """
    if not all(map(math.isfinite, (a, b, both))):
        return Finding(expected, settled=False)
    scale = max(abs(both), abs(a - b), 1e-12)
    candidates = [expected, *(name for name in Counts._fields if name != expected)]
    predictions = {name: _mean(a, b, getattr(of_a, name), getattr(of_b, name)) for name in candidates}
    spread = max(predictions.values()) - min(predictions.values())
    errors = {name: abs(predictions[name] - both) / scale for name in candidates}
    best = min(candidates, key=lambda name: max(errors[name], tolerance / 100))  # the first of equals
    if errors[best] > tolerance:
        return Finding(None, settled=True)
    return Finding(best, settled=spread > 2 * tolerance * scale)


def rounding(model: nn.Module) -> float:
    """Relative difference of two losses that rounding may cause: by the least precise weights of the model."""
    kinds = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    division = division_of(model)
    if division is not None and division.computed_in is not None:
        kinds.add(division.computed_in)
    return 1e-3 if kinds <= {torch.float32, torch.float64} else 3e-2


def unlike(examples: Sequence[MicroBatch]) -> tuple[int, int] | None:
    """Two examples, each collated alone, that differ most in labels, and in length where labels do not tell them apart;
    None where there are no two with a target each."""
    usable = [i for i, one in enumerate(examples) if one.counts.labels > 0 and one.counts.next_labels > 0]
    if len(usable) < 2:
        return None
    ranked = sorted(usable, key=lambda i: (examples[i].counts.labels, examples[i].num_tokens))
    return ranked[0], ranked[-1]


@contextlib.contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """The model without dropout and with its running statistics left alone; the random state of the caller kept."""
    with in_evaluation(model), kept():
        seed_all(0)
        yield


def _mean(a: float, b: float, weight_a: int, weight_b: int) -> float:
    return (weight_a * a + weight_b * b) / (weight_a + weight_b)
