"""From row numbers to a step: reading, micro-batching, collating, trimming, counting."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from burnish.core.errors import DataError
from burnish.core.randomness import COLLATION, EVALUATION, EXAMPLE, seed_all, seed_for
from burnish.core.types import Counts, Inputs, MicroBatch, Step

from .arrow_rows import ArrowRows, is_of_datasets
from .counting import num_positions, num_rows, num_tokens
from .lengths import brought_length, real_length
from .microbatches import Budget, cut
from .reading import row_of, rows_of
from .row_draws import CollateRows
from .shifted_labels import with_predictable_labels
from .trimming import trimmed

Rows = list[tuple[int, Any]]
"""Examples with their row numbers."""


@dataclass(frozen=True)
class Assembly:
    """Makes steps of examples. Holds no state: the same examples at the same place always give the same step.

    Args:
        collate: a list of examples to the keyword arguments of `forward`.
        count: what the loss may be a mean over, in a collated batch.
        budget: how much goes through the model at once, or None to leave the batches whole.
        trim: cut away padding that no row attends to.
        is_encoder_decoder: the model reads its labels as a second sequence.
        shifts_labels: the loss predicts each label from the position before it.
        padding_free: the layers of the model compute no padding (for the counts).
        seed: seed of the run, for collators and datasets that draw at random.
        collate_rows: `collate` with a seed for each example, where what it draws for an example can follow from that.
        collation_draws: whether the collator draws at random for a batch as a whole.
        examples_draw: whether reading an example may draw at random.
        process: number of this process: what a collator draws for a batch as a whole is its own.
        look: refuses rows that nobody could look through before they were read.
    """

    collate: Callable[[list[Any]], Any]
    count: Callable[[Inputs], Counts]
    budget: Budget | None
    trim: bool = True
    is_encoder_decoder: bool = False
    shifts_labels: bool = False
    padding_free: bool = False
    seed: int = 0
    collate_rows: CollateRows | None = None
    collation_draws: bool = False
    examples_draw: bool = False
    process: int = 0
    look: Callable[[Rows], None] | None = None

    def read(self, dataset: Any, row_numbers: Sequence[int], epoch: int) -> Rows:
        """The examples of these rows. A row that draws at random gets a seed of its own in every pass."""
        if not self.examples_draw:
            return list(zip(row_numbers, rows_of(dataset, row_numbers), strict=True))
        return [(row, self._example(dataset, row, epoch)) for row in row_numbers]

    def step(self, epoch: int, index: int, batches: Sequence[Rows], stand_in: Rows | None = None) -> Step:
        """One step of the examples of its batches; without any, examples that stand in for them may be given."""
        groups = self._groups(batches)
        return Step(
            epoch=epoch,
            index=index,
            micro_batches=tuple(self.micro_batch(group, epoch, index, i) for i, group in enumerate(groups)),
            num_positions_plain=sum(len(batch) * max(brought_length(e) for _, e in batch) for batch in batches),
            stand_in=None if stand_in is None or batches else self.micro_batch(stand_in, epoch, index),
        )

    def micro_batch(self, rows: Rows, epoch: int = 0, index: int = 0, number: int = 0) -> MicroBatch:
        """Collates some examples. A collator that draws is seeded by (pass, row) where it draws for rows, else by the
        place (pass, step, micro-batch)."""
        if self.look is not None:
            self.look(rows)
        if self.collation_draws:
            of_process = (self.process,) if self.process else ()
            seed_all(seed_for(self.seed, COLLATION, epoch, index, number, *of_process))
        return self.counted(self._collated(rows, epoch), [row for row, _ in rows])

    def counted(self, inputs: Inputs, row_numbers: Sequence[int]) -> MicroBatch:
        """A batch that is collated already, trimmed and counted."""
        if not isinstance(inputs, dict):
            rows = num_rows(inputs) or max(1, len(row_numbers))  # an object of the user's own does not show its rows
            return MicroBatch(inputs, tuple(row_numbers), Counts(rows, rows, rows), rows, rows)
        inputs = trimmed(inputs, self.is_encoder_decoder) if self.trim else inputs
        inputs = with_predictable_labels(inputs) if self.shifts_labels else inputs
        tokens = num_tokens(inputs)
        positions = tokens if self.padding_free else num_positions(inputs)
        return MicroBatch(inputs, tuple(row_numbers), self.count(inputs), tokens, positions)

    def for_evaluation(self) -> Assembly:
        """The same for an evaluation. What it draws is the same on every process, and is not what a training on these
        rows has drawn."""
        return replace(self, process=0, seed=seed_for(self.seed, EVALUATION))

    def whole(self) -> Assembly:
        """The same without micro-batching, for losses in which the rows of a batch interact."""
        return replace(self, budget=None)

    def _groups(self, batches: Sequence[Rows]) -> list[Rows]:
        rows = [row for batch in batches for row in batch]
        if self.budget is None:
            return [list(batch) for batch in batches]
        lengths = [real_length(example, self.is_encoder_decoder) for _, example in rows]
        if any(length is None for length in lengths):
            return [list(batch) for batch in batches]  # nothing to sort by: images, audio, plain features
        return [[rows[i] for i in group] for group in cut([length or 0 for length in lengths], self.budget)]

    def _example(self, dataset: Any, row: int, epoch: int) -> Any:
        if self.examples_draw:
            seed_all(seed_for(self.seed, EXAMPLE, epoch, row))
        return row_of(dataset, row)

    def _collated(self, rows: Rows, epoch: int) -> Inputs:
        numbers, examples = [row for row, _ in rows], [_copy(example) for _, example in rows]
        try:
            if self.collate_rows is None:
                batch = self.collate(examples)
            else:
                batch = self.collate_rows(examples, [seed_for(self.seed, COLLATION, epoch, row) for row in numbers])
        except DataError as error:
            raise DataError(f"{error} (The batch is made of rows {numbers}.)") from None
        except Exception as error:
            raise DataError(
                f"The data collator failed on rows {numbers}: {type(error).__name__}: {error}. If rows have different "
                "lengths, pass `processing_class=tokenizer` or a `data_collator` that pads."
            ) from error
        return as_inputs(batch, numbers)


def as_inputs(batch: Any, numbers: Sequence[int]) -> Inputs:
    """A collated batch as a plain dict of keyword arguments. A batch of another shape is for a user's own
    `compute_loss`, and passes as it is."""
    if batch is None or (isinstance(batch, (list, tuple)) and not batch):
        raise DataError(
            f"The data_collator returned {batch!r} for rows {list(numbers)}. It must return a dict of tensors, such as "
            '{"input_ids": …, "labels": …}.'
        )
    if not isinstance(batch, Mapping):
        return batch  # type: ignore[no-any-return]
    inputs = dict(batch)
    if num_rows(inputs) == 0:
        raise DataError(
            f"The batch of rows {list(numbers)} holds no tensor, only {sorted(inputs)}. Tokenise the dataset, or set "
            "`remove_unused_columns=False` if a `data_collator` makes the tensors from other columns."
        )
    return inputs


def _copy(example: Any) -> Any:
    """A collator may take things out of an example; the dataset's own row stays as it is."""
    if type(example) is dict:  # what most rows are, without looking further
        return example.copy()
    return copy.copy(example) if isinstance(example, MutableMapping) else example


def reading_draws(dataset: Any) -> bool:
    """Whether reading a row may draw at random: not for lists and tables without a transform."""
    if is_of_datasets(dataset, "Dataset"):
        return bool(dataset.format["type"] == "custom")
    return not isinstance(dataset, (list, tuple, ArrowRows))
