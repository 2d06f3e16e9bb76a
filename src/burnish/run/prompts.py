"""Which rows an evaluation writes texts for, and their prompts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from burnish.core.errors import DataError
from burnish.core.types import Inputs
from burnish.data.batches import NumberedBatches, OrderedBatches, in_order
from burnish.data.counting import num_rows
from burnish.data.loaders import SharedLoader
from burnish.data.reading import row_of
from burnish.data.table import as_names, spread
from burnish.generation.prompts import Cut, are_texts, cut_rows, prompt_ids, with_prompt

from .data import loading_for
from .length_order import ByLength

if TYPE_CHECKING:
    from burnish.trainer import Trainer


@dataclass
class ToWrite:
    """Rows of this process that texts are written for."""

    rows: list[int] = field(default_factory=list)
    """Their numbers in the dataset, or in the order of the loader."""
    cuts: list[Cut] = field(default_factory=list)


def prompts_to_write(trainer: Trainer, loader: Any, most: int | None) -> ToWrite | None:
    """The prompts in the batches of a loader; None where those of any process are no texts: one may have no batch.

    Args:
        most: rows at the most, over all processes: spread over a dataset, or the first ones of another loader. None for
            all.
    """
    wanted = _own_prompts(trainer, loader, most)
    return None if any(trainer.engine.processes.all_of(wanted is None)) else wanted


def _own_prompts(trainer: Trainer, loader: Any, most: int | None) -> ToWrite | None:
    wanted = ToWrite()
    for rows, inputs in _batches(trainer, loader.in_dataset_order if isinstance(loader, ByLength) else loader, most):
        if not are_texts(inputs):
            return None
        wanted.rows += rows
        wanted.cuts += cut_rows(inputs, trainer.facts.is_encoder_decoder)
    return wanted


def prompts_of_column(wanted: ToWrite, dataset: Any, column: str, processing_class: Any) -> ToWrite:
    """The same rows with the prompts that a column has: texts, token ids, or the messages of a chat.

    Raises:
        DataError: a row has no such column, or nothing that can be read in it.
    """
    cuts = []
    for row, cut in zip(wanted.rows, wanted.cuts, strict=True):
        values = as_names(row_of(dataset, row)) or {}
        if column not in values:
            raise DataError(
                f"Row {row} has no column {column!r} (generation_prompt_column); it has "
                f"{', '.join(map(repr, values)) or 'none'}."
            )
        cuts.append(with_prompt(cut, prompt_ids(values[column], processing_class, row, column)))
    return ToWrite(wanted.rows, cuts)


def _batches(trainer: Trainer, loader: Any, most: int | None) -> Iterator[tuple[list[int], Inputs]]:
    """Batches of this process with the numbers of their rows."""
    processes = trainer.engine.processes
    batches = getattr(loader, "dataset", None)
    if isinstance(batches, OrderedBatches):
        chosen = spread(len(batches.dataset), most).tolist() if most else list(range(len(batches.dataset)))
        own = chosen[processes.index :: processes.count]
        places = in_order(len(own), trainer.settings.eval_batch_size)
        parts = OrderedBatches(batches.dataset, [[own[i] for i in part] for part in places], batches.assembly)
        for part in loading_for(trainer, trainer.settings).loader(NumberedBatches(parts), sampler=range(len(parts))):
            yield list(part.rows), part.inputs
        return
    yield from _of_loader(SharedLoader(loader, processes), most)


def _of_loader(shared: SharedLoader, most: int | None) -> Iterator[tuple[list[int], Inputs]]:
    """Where each process has batches of its own, row i is taken to be for process i modulo their number."""
    begun, processes = 0, shared.processes
    for together in shared.rounds():
        for place, inputs in enumerate(together):
            rows = list(range(begun, begun + num_rows(inputs)))
            begun += len(rows)
            if place == shared.place:
                numbers = rows if shared.is_dealt else [row * processes.count + processes.index for row in rows]
                left = len(rows) if most is None else sum(number < most for number in numbers)
                yield numbers[:left], _first(inputs, left)
        if most is not None and begun * (1 if shared.is_dealt else processes.count) >= most:
            return


def _first(inputs: Inputs, count: int) -> Inputs:
    return {name: value[:count] for name, value in inputs.items()}
