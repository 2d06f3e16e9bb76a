"""When memory runs out within a step: its micro-batches are cut smaller, and the step stays the same step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from burnish.core.errors import OutOfMemoryError
from burnish.core.protocols import Engine
from burnish.core.types import Inputs, MicroBatch, Step, are_rows_apart, rows_between

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

Counted = Callable[[Inputs, Sequence[int]], MicroBatch]
"""Inputs of some examples and their row numbers to a micro-batch, trimmed and counted."""

LESS_MEMORY = (
    "gradient_checkpointing=True, shorter rows (a smaller max length), an optimizer that keeps less "
    "(optim='adafactor'), adapters, or a smaller model"
)


def attempted(engine: Engine, compute: Callable[[], Result]) -> tuple[Result | None, str]:
    """What `compute` gives; or, where memory ran out, None and the words of the error.

    In that case nothing holds what the attempt had made: the error, its stack trace and the frames with their tensors
    are gone, and `engine.free_memory` can give it back.
    """
    try:
        return compute(), ""
    except (RuntimeError, MemoryError) as error:
        if not engine.is_out_of_memory(error):
            raise
        return None, str(error).strip().split("\n")[0] or "out of memory"


def as_a_whole(predict: Callable[[Any], Result], inputs: Any, rows: int) -> Iterator[tuple[Any, Result]]:
    """A batch of an evaluation with what `predict` gives."""
    yield inputs, predict(inputs)


def in_parts_that_fit(
    engine: Engine, may_cut: bool, predict: Callable[[Any], Result], inputs: Any, rows: int
) -> Iterator[tuple[Any, Result]]:
    """The same; where memory runs out, the halves of the batch one after the other, or halves of these.

    Raises:
        OutOfMemoryError: it cannot be cut; the message says what to set.
    """
    result, words = attempted(engine, lambda: predict(inputs))
    if result is not None:
        yield inputs, result
        return
    engine.free_memory()
    if rows < 2 or not may_cut or not are_rows_apart(inputs, rows):
        raise OutOfMemoryError(
            f"Memory ran out in an evaluation, at a batch of {rows} rows that cannot be cut smaller. Set a smaller "
            f"per_device_eval_batch_size (and prediction_loss_only=True if no metric needs predictions). ({words})"
        )
    for start, end in ((0, rows // 2), (rows // 2, rows)):
        part = rows_between(inputs, rows, start, end)
        yield from in_parts_that_fit(engine, may_cut, predict, part, end - start)


class MemoryLimit:
    """How much goes through the model at once, from the first time on that memory ran out.

    Args:
        counted: makes a micro-batch of some rows of another; None where batches must stay whole.
    """

    def __init__(self, counted: Counted | None = None) -> None:
        self.counted = counted
        self.positions: int | None = None
        """Positions of a micro-batch at the most, a longer row goes alone; None while everything has fitted."""
        self._told: int | None = None

    def cut(self, batches: Sequence[MicroBatch]) -> list[MicroBatch]:
        """The same examples in the same order, in micro-batches within the limit."""
        return [part for batch in batches for part in self._parts(batch)]

    def _parts(self, batch: MicroBatch) -> Iterator[MicroBatch]:
        size = len(batch.rows)
        if self.positions is None or batch.num_positions <= self.positions or not self._may_cut(batch):
            yield batch
            return
        assert self.counted is not None
        for start, end in ((0, size // 2), (size // 2, size)):
            yield from self._parts(self.counted(batch.between(start, end), batch.rows[start:end]))

    def _may_cut(self, batch: MicroBatch) -> bool:
        return self.counted is not None and len(batch.rows) > 1 and batch.has_rows_apart

    def lower(self, failed: MicroBatch, words: str) -> None:
        """Takes down that a micro-batch did not fit: the limit is half of it from now on.

        Raises:
            OutOfMemoryError: it cannot be cut; the message says what to set.
        """
        if not self._may_cut(failed) or failed.num_positions < 2:
            raise OutOfMemoryError(f"{_described(failed, self.counted is None)} ({words})")
        self.positions = failed.num_positions // 2

    def tell(self, step: Step, process: int = 0) -> None:
        """Says, once for each new limit, that there is one since this step."""
        if self.positions != self._told:
            # warnings are said by the first process alone, since they are those of all alike
            level, where = (logging.ERROR, f" on process {process}") if process else (logging.WARNING, "")
            logger.log(
                level,
                "Memory ran out%s in step %d of pass %d. The step was computed again with micro-batches of at most %d "
                "tokens (of single rows where these are longer), as all steps are from now on; it is the same step. "
                "token_budget=%d starts a run like this.",
                *(where, step.index + 1, step.epoch + 1, self.positions, self.positions),
            )
            self._told = self.positions


def too_late(failed: MicroBatch, words: str) -> str:
    """What to set where a step cannot be begun again: other processes have part of its gradient, or take part in its
    forward pass; or weights have been updated in the backward pass."""
    return (
        f"Memory ran out at a micro-batch of {len(failed.rows)} rows ({failed.num_positions} tokens), when the step "
        "could not begin again: other processes were at work on it, or weights had been updated. Set "
        f"token_budget={max(1, failed.num_positions // 2)}, or {LESS_MEMORY}. ({words})"
    )


def _described(failed: MicroBatch, whole: bool) -> str:
    """What did not fit, why it is not cut, and what to set."""
    rows, positions = failed.rows, failed.num_positions
    if len(rows) <= 1:
        return (
            f"Memory ran out at row {', '.join(map(str, rows))} alone, of {positions} tokens: nothing is left to be "
            f"cut. Set {LESS_MEMORY}."
        )
    why = (
        "its rows may depend on each other (a loss or training step of your own, batch normalisation)"
        if whole
        else "its inputs do not show which part belongs to which row"
    )
    return (
        f"Memory ran out at a batch of {len(rows)} rows ({positions} tokens), which is left whole, since {why}. Set a "
        f"smaller per_device_train_batch_size and gradient_accumulation_steps the more, or {LESS_MEMORY}."
    )
