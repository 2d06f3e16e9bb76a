"""Values that travel through a run: examples in micro-batches in steps, losses, and what a step reports."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from .loss_terms import TermSums

IGNORED_LABEL = -100
"""The label of a position that carries no loss (the ``ignore_index`` of every transformers loss)."""

Inputs = dict[str, Any]
"""What a model's ``forward`` takes by keyword; tensors have shape (batch, ...)."""


class Counts(NamedTuple):
    """What a loss may be a mean over, counted in a collated batch. Which of them it is, the objective knows."""

    rows: int
    labels: int
    """Labels other than -100; the number of rows where labels are not integers."""
    next_labels: int
    """The same without the first position of each row: targets of a loss that predicts the next position."""


@dataclass(frozen=True)
class MicroBatch:
    """What goes through the model at once, with its counts, all known on the host."""

    inputs: Inputs
    rows: tuple[int, ...]
    """Number of each example in its dataset, in the order of the batch."""
    counts: Counts
    num_tokens: int
    """Tokens that are attended to: neither padding nor special zeros of the mask."""
    num_positions: int
    """Positions the model computes, padding included."""

    def only(self, position: int) -> Inputs:
        """The inputs of one example: the rows at `position` of all tensors that have one for each example."""
        return self.between(position, position + 1)

    def between(self, start: int, end: int) -> Inputs:
        """The inputs of the examples from `start` to before `end`, as views."""
        inputs: Inputs = rows_between(self.inputs, len(self.rows), start, end)
        return inputs

    @property
    def has_rows_apart(self) -> bool:
        """Whether the examples can be told apart in the inputs: each tensor has a row for each, or is one number."""
        return len(self.rows) > 0 and are_rows_apart(self.inputs, len(self.rows))

    def pin_memory(self) -> MicroBatch:
        """A copy with its tensors in page-locked memory; torch's loader asks for it by this name."""
        return replace(self, inputs=_pinned(self.inputs))


@dataclass(frozen=True)
class Step:
    """The examples of one optimizer update, cut into micro-batches."""

    epoch: int
    """Pass over the data, counted from 0."""
    index: int
    """Step within the pass, counted from 0."""
    micro_batches: tuple[MicroBatch, ...]
    num_positions_plain: int = 0
    """Positions that the usual padded batches of these examples would have had."""
    stand_in: MicroBatch | None = None
    """Of a process that has no micro-batch in this step: one of another process, for engines in which every process has
    to compute something. Its loss counts nothing."""
    stream_state: Any = None
    """Of the stream that the examples were read from, after them: where it can say its place."""

    @property
    def num_examples(self) -> int:
        return sum(len(batch.rows) for batch in self.micro_batches)

    @property
    def num_tokens(self) -> int:
        return sum(batch.num_tokens for batch in self.micro_batches)

    @property
    def num_positions(self) -> int:
        return sum(batch.num_positions for batch in self.micro_batches)

    @property
    def rows(self) -> list[int]:
        return [row for batch in self.micro_batches for row in batch.rows]

    def pin_memory(self) -> Step:
        """A copy with its tensors in page-locked memory; torch's loader asks for it by this name."""
        stand_in = self.stand_in and self.stand_in.pin_memory()
        return replace(self, micro_batches=tuple(batch.pin_memory() for batch in self.micro_batches), stand_in=stand_in)


def rows_between(inputs: Any, size: int, start: int, end: int) -> Any:
    """Of a batch of `size` examples, those from `start` to before `end`: of each tensor that has a row for each example
    these rows, as a view, and all else as it is."""
    if not isinstance(inputs, dict):
        return inputs
    return {name: value[start:end] if _has_rows(value, size) else value for name, value in inputs.items()}


def are_rows_apart(inputs: Any, size: int) -> bool:
    """Whether `rows_between` gives the examples of a batch of `size` examples, with nothing of the others."""
    if not isinstance(inputs, dict):
        return False
    tensors = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
    others = any(isinstance(value, (dict, list, tuple)) for value in inputs.values())
    return not others and all(value.dim() == 0 or _has_rows(value, size) for value in tensors)


def _has_rows(value: Any, size: int) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == size


def _pinned(value: Any) -> Any:
    """The same nesting with pinned tensors; a batch for a user's own `compute_loss` need not be a dict."""
    if isinstance(value, torch.Tensor):
        return value.pin_memory()
    if isinstance(value, dict):
        return {name: _pinned(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_pinned(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


@dataclass(frozen=True)
class StepReport:
    """What a step came to. The tensors are 0-dimensional, float32, and stay on the device until a log is due."""

    loss: torch.Tensor
    """Summed loss of the step over its number of targets."""
    grad_norm: torch.Tensor
    """2-norm of all gradients before clipping."""
    finite: torch.Tensor
    """bool: loss and gradient are finite; where it is False, the update was not applied (unless asked for)."""
    terms: TermSums = field(default_factory=dict)
    """Of the loss, as far as this process has computed them."""


class TrainOutput(NamedTuple):
    """What ``Trainer.train`` returns."""

    global_step: int
    training_loss: float
    metrics: dict[str, float]


class PredictionOutput(NamedTuple):
    """What ``Trainer.predict`` returns, in dataset order."""

    predictions: Any
    label_ids: Any
    metrics: dict[str, float] | None


class EvalLoopOutput(NamedTuple):
    """What ``Trainer.evaluation_loop`` returns, in dataset order."""

    predictions: Any
    label_ids: Any
    metrics: dict[str, float] | None
    num_samples: int | None
