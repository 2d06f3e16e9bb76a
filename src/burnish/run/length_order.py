"""Evaluation and prediction in the order of length: the same rows, the same results, and less padding."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from burnish.core.protocols import Processes
from burnish.core.types import Inputs, MicroBatch
from burnish.data.assembly import Assembly
from burnish.data.batches import NumberedBatches, OrderedBatches, in_order
from burnish.data.dataset_lengths import lengths_of
from burnish.data.microbatches import Budget, filled
from burnish.data.sources import Loading
from burnish.data.table import is_at_hand, spread
from burnish.evaluation.logits import keys_to_ignore, logits_of
from burnish.models.padding_free import PaddingFree
from burnish.objectives.measured import undisturbed
from burnish.objectives.objective import close

from .data import assembly_for, budget_for, loading_for
from .hooks import has_own_loss, overridden
from .loss import native_loss, objective_for
from .settling import padding_free, settle_on_rows, trial_of_rows

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)

SEES_BATCHES = ("evaluation_loop", "prediction_step", "_prepare_inputs")
"""Methods that see batches one by one: a user's own may count on the order of the dataset."""

TRIAL_ROWS = 64
"""Rows among which two unlike ones are looked for."""


class ByLength:
    """Batches of like length, the longest first, behind the loader in dataset order that callbacks look at.

    Args:
        loader: the batches in dataset order.
        batches: the batches by length.
        own: numbers of those that this process computes.
        padding_free: how the layers of the model leave out the padding that is left, if that is not in force already.
    """

    def __init__(
        self,
        loader: DataLoader[Inputs],
        batches: OrderedBatches,
        own: Sequence[int],
        loading: Loading,
        padding_free: PaddingFree | None,
    ) -> None:
        self.in_dataset_order = loader
        self._batches = loading.loader(NumberedBatches(batches), sampler=own)
        self._padding_free = padding_free

    def __len__(self) -> int:
        return len(self.in_dataset_order)

    def __iter__(self) -> Iterator[Inputs]:
        return iter(self.in_dataset_order)

    def __getattr__(self, name: str) -> Any:
        """Only called for what this class does not have."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.in_dataset_order, name)

    def numbered(self) -> Iterator[MicroBatch]:
        """The batches by length, with the numbers of their rows in the dataset."""
        return iter(self._batches)

    @property
    def leaves_padding_out(self) -> bool:
        """Whether the layers of the model compute no padding."""
        return self._padding_free is not None

    def computed_so(self) -> contextlib.AbstractContextManager[None]:
        """Leaves padding out inside the context, where that was found to be the same."""
        return contextlib.nullcontext() if self._padding_free is None else self._padding_free.on()


@dataclass(frozen=True)
class Tried:
    """What two rows have shown of a model, training or evaluating."""

    model: nn.Module
    padding_free: bool
    """Whether its layers can leave padding out."""


def in_length_order(trainer: Trainer, dataset: Any, args: Any, loader: DataLoader[Inputs]) -> ByLength | None:
    """A dataset's batches by length; None where they are to come as they stand.

    They come as they stand where a user's own code sees the batches, where the rows of a batch interact or depend on
    its padding, and where lengths are not known before the rows are read.

    Args:
        dataset: pruned, and looked through.
        loader: its batches in dataset order.
    """
    own = args.batch_eval_metrics or not args.eval_do_concat_batches
    own = own or any(overridden(trainer, method) for method in SEES_BATCHES)
    if own or has_own_loss(trainer) or trainer.facts.rows_interact or not is_at_hand(dataset):
        return None
    lengths = lengths_of(dataset, trainer.facts.is_encoder_decoder)
    tried = None if not lengths else _tried(trainer, dataset, args)
    assembly = assembly_for(trainer, args).for_evaluation()
    if not lengths or tried is None or trainer.objective.rows_interact or not assembly.trim:
        return None
    budget = _budget(trainer, args, tried.padding_free)
    groups, own = _groups(lengths, args, assembly, budget, trainer.engine.processes)
    to_enter = PaddingFree.of(trainer.model) if tried.padding_free and not trainer.is_in_train else None
    return ByLength(loader, OrderedBatches(dataset, groups, assembly), own, loading_for(trainer, args), to_enter)


def _groups(
    lengths: Sequence[int], args: Any, assembly: Assembly, budget: Budget, processes: Processes
) -> tuple[list[list[int]], Sequence[int]]:
    """Row numbers by length, and which of these batches are of this process.

    Each process makes batches of its share of the rows. Where a collator draws for a batch as a whole, all batches have
    a fixed number of rows and are dealt out, so that a loss is the same on every device and number of processes.
    """
    by_length = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    if assembly.collation_draws:
        groups = [[by_length[i] for i in batch] for batch in in_order(len(lengths), args.eval_batch_size)]
        return groups, range(processes.index, len(groups), processes.count)
    rows = by_length[processes.index :: processes.count]
    groups = [[rows[i] for i in group] for group in filled([lengths[row] for row in rows], budget)]
    return groups, range(len(groups))


def _budget(trainer: Trainer, args: Any, leaves_padding_out: bool) -> Budget:
    """As in training. On accelerators never more rows at once than the user's own batch."""
    budget = budget_for(trainer, args)
    assert budget is not None, "the rows of a batch interact"
    by_tokens = trainer.engine.device.type == "cpu"
    return replace(budget, rows=None if by_tokens else args.eval_batch_size, padding_costs=not leaves_padding_out)


def _generates(args: Any) -> bool:
    return bool(getattr(args, "predict_with_generate", False))


def _tried(trainer: Trainer, dataset: Any, args: Any) -> Tried | None:
    """What is known of the model, from its training or from two rows of this dataset; None where they say nothing, or
    that rows depend on what else is in their batch."""
    if trainer.tried is not None and trainer.tried.model is trainer.model:
        return trainer.tried
    if trainer.engine.divides:
        return None  # two rows alone are forward passes in which all processes would have to take part
    own: Tried | None = None
    try:
        own = _try(trainer, dataset, args)
    except Exception as error:  # the evaluation itself will say it, and name the rows
        logger.debug("The trial of two rows failed: %s: %s", type(error).__name__, error)
    answers = trainer.engine.processes.all_of(None if own is None else own.padding_free)  # all go the same way
    return None if own is None or None in answers else replace(own, padding_free=all(answers))


def _try(trainer: Trainer, dataset: Any, args: Any) -> Tried | None:
    assembly = assembly_for(trainer, args)
    rows = assembly.read(dataset, spread(len(dataset), TRIAL_ROWS).tolist(), epoch=0)
    if rows and _has_labels(trainer, assembly.micro_batch(rows[:1])):
        settled = settle_on_rows(trainer, args, assembly, rows, objective_for(trainer))
        if settled is None:
            return None
        trainer.objective = settled.objective
        trainer.tried = Tried(trainer.model, settled.padding_free is not None)
        return trainer.tried
    if _generates(args):
        return Tried(trainer.model, False)
    return _try_outputs(trainer, args, assembly, rows)


def _has_labels(trainer: Trainer, batch: MicroBatch) -> bool:
    return not trainer.label_names or any(batch.inputs.get(name) is not None for name in trainer.label_names)


def _try_outputs(trainer: Trainer, args: Any, assembly: Assembly, rows: Any) -> Tried | None:
    """Without labels, outputs are compared: of two rows, each alone and together."""
    trial = trial_of_rows(trainer, assembly, rows)
    if trial is None:
        return None
    alone = [_sizes(trainer, part)[0] for part in (trial.first, trial.second)]
    together = _sizes(trainer, trial.both)
    if not all(close(one, other, trainer.model) for one, other in zip(alone, together, strict=True)):
        return None
    free = padding_free(trainer, args, lambda: (sum(_sizes(trainer, trial.both)),))
    return Tried(trainer.model, free is not None)


def _sizes(trainer: Trainer, batch: MicroBatch) -> list[float]:
    """For each row the sum of squares of what the model returns, at real tokens where it returns something for each."""
    with undisturbed(trainer.model), torch.no_grad():
        outputs = native_loss(trainer).forward(trainer.model, batch.inputs)
    found = logits_of(outputs, False, keys_to_ignore(getattr(trainer.model, "config", None)))
    mask = batch.inputs.get("attention_mask")
    sizes = torch.zeros(len(batch.rows))
    for output in found if isinstance(found, tuple) else (found,):
        squares = output.double().square()
        if mask is not None and squares.shape[: mask.dim()] == mask.shape:
            squares = squares * mask.reshape(*mask.shape, *(1 for _ in squares.shape[mask.dim() :]))
        sizes += squares.flatten(1).sum(1).cpu()
    return sizes.tolist()
