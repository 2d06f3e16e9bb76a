"""Which examples form which step of a run: rows or bins of rows, in the order that the settings ask for."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from burnish.core.errors import SettingError
from burnish.core.randomness import kept
from burnish.data.dataset_lengths import all_known, lengths_of
from burnish.data.lengths import real_length
from burnish.data.microbatches import Budget
from burnish.data.order import GroupedByLength, Order, Sequential, Shuffled
from burnish.data.packing import PackedPlan, bins_of
from burnish.data.plan import Plan
from burnish.data.reading import row_of

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)


def plan_for(trainer: Trainer, args: Any) -> Plan | PackedPlan:
    """The plan of the trainer's training rows.

    Raises:
        SettingError: the lengths of the rows are needed, and are not known.
    """
    dataset = trainer.train_dataset
    batch_size = args.train_batch_size * trainer.engine.num_processes
    if args.packing:
        return _packed(trainer, dataset, args, batch_size)
    order = _order(dataset, args, batch_size)
    return Plan(len(dataset), batch_size, args.gradient_accumulation_steps, order, args.dataloader_drop_last)


def refuse_packing(args: Any, what: str) -> None:
    """Raises `SettingError` where bins are asked for of rows that the run does not plan."""
    if args.packing:
        raise SettingError(
            f"packing=True needs the length of every row before the first step; {what}. Set packing=False: padding is "
            "left out all the same, and token_budget says how many tokens go through the model at once."
        )


def within_bins(budget: Budget | None, plan: Plan | PackedPlan, batch_size: int) -> Budget | None:
    """A budget for the steps of this plan: where it allows as many rows as a batch has, and these are bins, it allows
    the tokens of these bins."""
    if budget is None or budget.rows is None or not isinstance(plan, PackedPlan):
        return budget
    return replace(budget, rows=None, tokens=min(budget.tokens, batch_size * plan.bins.size))


def _packed(trainer: Trainer, dataset: Any, args: Any, batch_size: int) -> PackedPlan:
    bins = bins_of(dataset, args.packing_length, trainer.facts.is_encoder_decoder, args.length_column_name)
    logger.info(
        "Packing: %d rows in %d bins of %d tokens, of which %.1f %% are filled.",
        *(len(bins.lengths), len(bins), bins.size, 100 * bins.filled),
    )
    seed = None if str(args.train_sampling_strategy) == "sequential" else data_seed(args)
    return PackedPlan.of(bins, batch_size, args.gradient_accumulation_steps, seed, args.dataloader_drop_last)


def data_seed(args: Any) -> int:
    """The seed of the order of the rows."""
    seed: int = args.seed if args.data_seed is None else args.data_seed
    return seed


def _order(dataset: Any, args: Any, batch_size: int) -> Order:
    sampling = str(args.train_sampling_strategy)
    if sampling == "sequential":
        return Sequential(len(dataset))
    if sampling == "group_by_length":
        step_size = batch_size * args.gradient_accumulation_steps
        return GroupedByLength(_lengths(dataset, args.length_column_name), step_size, data_seed(args))
    return Shuffled(len(dataset), data_seed(args))


def _lengths(dataset: Any, column: str) -> list[int]:
    """The column of lengths where the data have one, else the tokens of each row; rows that are computed are read."""
    lengths = lengths_of(dataset, length_column=column)
    if lengths is None:
        with kept():
            lengths = all_known([real_length(row_of(dataset, row)) for row in range(len(dataset))])
    if lengths is None:
        raise SettingError(
            "train_sampling_strategy='group_by_length' needs rows with `input_ids`, or a column of lengths named by "
            f"length_column_name (now {column!r})."
        )
    return lengths
