"""The data side of a run: from a dataset and settings to a source of steps."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from burnish.checkpoint.position import NUM_PROCESSES, PARTS, STEP_SIZE, STREAM_FILES, STREAM_ORDER
from burnish.core.errors import SettingError
from burnish.data.assembly import Assembly, reading_draws
from burnish.data.batches import OrderedBatches, StreamBatches, is_stream
from burnish.data.checks import check_training_data
from burnish.data.checks_as_read import RowChecks
from burnish.data.collator_facts import draws_randomness, is_known, makes_labels, pads_rows
from burnish.data.columns import KeepColumns, select_columns
from burnish.data.dataset_lengths import lengths_of
from burnish.data.fingerprint import fingerprint
from burnish.data.kinds import check_is_dataset
from burnish.data.microbatches import Budget
from burnish.data.packing import PackedPlan
from burnish.data.row_draws import by_row
from burnish.data.share import Share
from burnish.data.sources import LoaderSource, Loading, PlannedSource, StreamSource
from burnish.data.stream_order import files_of, order_of
from burnish.data.stream_state import has_buffer
from burnish.data.table import is_at_hand

from .hooks import has_own_loss, overridden
from .loss import counter_for
from .plan import data_seed, plan_for, refuse_packing, within_bins

if TYPE_CHECKING:
    from burnish.trainer import Trainer

Source = PlannedSource | StreamSource | LoaderSource

ROWS, CONTENT = "rows of train_dataset", "content of train_dataset (fingerprint)"
"""In a position."""

CPU_BUDGET = Budget(tokens=1024, call_cost=64)
"""Measured on one core: above 1,024 positions a matrix product gains nothing, and one more pass over the weights of a
small encoder costs what some 64 positions cost."""

ACCELERATOR_CALL_COST = 2048
"""Positions that one more micro-batch costs where calls are cheap to compute and dear to launch."""


def assembly_for(trainer: Trainer, args: Any, budget: Budget | None = None) -> Assembly:
    """How examples of this trainer are collated and counted."""
    facts = trainer.facts
    collate = trainer.data_collator
    if args.remove_unused_columns:
        collate = KeepColumns.of(collate, facts, tuple(trainer.label_names))
    collate_rows = by_row(collate)
    return Assembly(
        collate=collate,
        count=counter_for(trainer),
        budget=budget,
        trim=args.trim_padding and trainer.trims,
        is_encoder_decoder=facts.is_encoder_decoder,
        shifts_labels=facts.shifts_labels and not has_own_loss(trainer),
        seed=args.seed,
        collate_rows=collate_rows,
        collation_draws=collate_rows is None and draws_randomness(collate),
        process=trainer.engine.process_index,
    )


def pruned(trainer: Trainer, dataset: Any, args: Any, name: str) -> Any:
    """A dataset without the columns that the model does not take."""
    if not args.remove_unused_columns:
        return dataset
    expects_labels = not makes_labels(trainer.data_collator)
    return select_columns(dataset, trainer.facts, tuple(trainer.label_names), name, expects_labels)


def budget_for(trainer: Trainer, args: Any) -> Budget | None:
    """How much goes through the model at once; None where batches are to stay whole."""
    if trainer.facts.rows_interact or has_own_loss(trainer):
        return None
    if trainer.engine.device.type == "cpu":
        return replace(CPU_BUDGET, tokens=args.token_budget or CPU_BUDGET.tokens)
    # never more rows at once than the user's own batch, which is what is known to fit
    rows = None if args.token_budget else args.train_batch_size
    return Budget(args.token_budget or sys.maxsize, ACCELERATOR_CALL_COST, rows)


def source_for(trainer: Trainer, args: Any) -> Source:
    """Where the steps of the run come from.

    Raises:
        DataError: the data cannot be trained on.
        SettingError: there is no training dataset.
    """
    assembly = assembly_for(trainer, args, budget_for(trainer, args))
    accumulation = args.gradient_accumulation_steps
    if overridden(trainer, "get_train_dataloader"):
        refuse_packing(args, "get_train_dataloader is overridden, and gives batches as they are")
        return LoaderSource(trainer.get_train_dataloader, accumulation, assembly, trainer.engine.processes)
    if trainer.train_dataset is None:
        raise SettingError("Trainer: training requires a train_dataset. Pass train_dataset=... to Trainer.")
    check_is_dataset(trainer.train_dataset, "train_dataset")
    batch_size = args.train_batch_size * trainer.engine.num_processes
    if not is_stream(trainer.train_dataset):
        check_rows(trainer, trainer.train_dataset, "train_dataset", batch_size, args.dataloader_drop_last)
    dataset = pruned(trainer, trainer.train_dataset, args, "train_dataset")
    loading = loading_for(trainer, args)
    assembly = replace(assembly, look=row_checks(trainer, trainer.train_dataset, "train_dataset"))
    if is_stream(dataset):
        refuse_packing(args, "train_dataset is a stream, of which rows are known as they come")
        parts = trainer.engine.num_processes if args.split_stream else 1
        reader = trainer.engine.processes if args.dispatches_batches and parts == 1 else None
        if reader is None:
            refuse_other_order(trainer, dataset, "train_dataset")
        return StreamSource(
            dataset, batch_size, accumulation, assembly, loading, args.dataloader_drop_last,
            stream_steps(dataset, args, batch_size) if parts == 1 else None, share_of(trainer, assembly),
            reader=reader, parts=parts,
        )  # fmt: skip
    plan = plan_for(trainer, args)
    budget = within_bins(assembly.budget, plan, args.train_batch_size)
    assembly = replace(assembly, budget=budget, examples_draw=reading_draws(dataset))
    return PlannedSource(
        dataset, plan, assembly, loading, share_of(trainer, assembly), lengths_to_share(trainer, dataset)
    )


def refuse_other_order(trainer: Trainer, stream: Any, name: str) -> None:
    """
    Raises:
        SettingError: each process would read a stream in another order.
    """
    if len(set(trainer.engine.processes.all_of(order_of(stream)))) > 1:
        raise SettingError(
            f"{name} is another stream on each process, so that rows would be read twice or never: it is shuffled or "
            "mixed without a seed, or was split by process already. Give shuffle(seed=...) or "
            "interleave_datasets(seed=...) a seed, and pass the whole stream: every process takes its share "
            "(of train_dataset by shards, with split_stream=True)."
        )


def share_of(trainer: Trainer, assembly: Assembly) -> Share:
    """The rows of each step that this process computes."""
    processes, budget = trainer.engine.processes, assembly.budget
    same_number = budget is not None and budget.rows is not None
    return Share(processes.index, processes.count, by_work=budget is not None, same_number=same_number)


def lengths_to_share(trainer: Trainer, dataset: Any) -> Sequence[int] | None:
    """The lengths of the rows where several processes share them out, and they are known before they are read."""
    if trainer.engine.num_processes == 1:
        return None
    return lengths_of(dataset, trainer.facts.is_encoder_decoder)


def check_rows(
    trainer: Trainer, dataset: Any, name: str, batch_size: int, drop_last: bool = False, labels_required: bool = True
) -> None:
    """Looks through a dataset before anything is computed.

    Raises:
        DataError: a row cannot be computed; the message names it.
    """
    check_training_data(
        dataset,
        name,
        facts=trainer.facts,
        batch_size=batch_size,
        drop_last=drop_last,
        collator_pads=pads_rows(trainer.data_collator),
        collator_makes_labels=makes_labels(trainer.data_collator),
        labels_required=labels_required and not has_own_loss(trainer),
        label_names=tuple(trainer.label_names),
        rows_are_inputs=is_known(trainer.data_collator),
    )


def row_checks(trainer: Trainer, dataset: Any, name: str, labels_required: bool = True) -> RowChecks | None:
    """Checks of rows as they are read; None for those that `check_rows` sees all of, or that a user's own collator
    may put right."""
    if is_at_hand(dataset) or not is_known(trainer.data_collator):
        return None
    return RowChecks(
        name,
        trainer.facts,
        tuple(trainer.label_names),
        makes_labels=makes_labels(trainer.data_collator),
        labels_required=labels_required and not has_own_loss(trainer),
    )


def stream_steps(dataset: Any, args: Any, batch_size: int) -> int | None:
    """Steps of a pass over a stream that knows its length; None for others."""
    try:
        rows = len(dataset)
    except TypeError:
        return None
    if args.dataloader_drop_last:
        rows -= rows % batch_size
    return math.ceil(rows / (batch_size * args.gradient_accumulation_steps))


def loading_for(trainer: Trainer, args: Any) -> Loading:
    """How batches are prepared beside the training."""
    return Loading(
        num_workers=args.dataloader_num_workers,
        prefetch_factor=args.dataloader_prefetch_factor,
        persistent=args.dataloader_persistent_workers,
        pin_memory=args.dataloader_pin_memory and trainer.engine.device.type == "cuda",
        context=args.dataloader_multiprocessing_context,
    )


def length_of_run(args: Any, source: Source) -> tuple[int, int]:
    """Optimizer steps and passes of the whole run.

    Raises:
        SettingError: the data have no length and no number of steps is set.
    """
    per_epoch = source.steps_per_epoch
    if args.max_steps > 0:
        return args.max_steps, math.ceil(args.max_steps / per_epoch) if per_epoch else sys.maxsize
    if per_epoch is None:
        raise SettingError(
            "max_steps must be set to a positive number: train_dataset is a stream without a length, so "
            f"num_train_epochs={args.num_train_epochs} does not say how many steps there are."
        )
    return math.ceil(args.num_train_epochs * per_epoch), math.ceil(args.num_train_epochs)


def position_of(trainer: Trainer, args: Any, source: Source) -> dict[str, Any]:
    """What the place of a run in its data depends on. A checkpoint can be resumed where this is the same."""
    position: dict[str, Any] = {
        STEP_SIZE: (args.train_batch_size * args.gradient_accumulation_steps * trainer.engine.num_processes),
        NUM_PROCESSES: trainer.engine.num_processes,
        "data_seed": data_seed(args),
        "train_sampling_strategy": str(args.train_sampling_strategy),
        "dataloader_drop_last": bool(args.dataloader_drop_last),
    }
    if isinstance(source, StreamSource):
        position.update({"split_stream": bool(args.split_stream), PARTS: source.parts})
        position[STREAM_FILES] = files_of(source.dataset)
        if has_buffer(source.dataset):  # its rows are read again, so that the order must be the same
            position[STREAM_ORDER] = order_of(source.dataset)
    if isinstance(source, PlannedSource):
        position[ROWS] = source.plan.num_rows
        if not source.assembly.examples_draw:
            position[CONTENT] = fingerprint(source.dataset)
        # without packing too: a checkpoint of bins cannot be gone on from in rows
        position["packing_length"] = source.plan.bins.size if isinstance(source.plan, PackedPlan) else None
    return position


def batch_loader(trainer: Trainer, args: Any) -> Any:
    """A loader of the whole batches of the first pass, in plan order, for those who ask for one: each process has its
    part of every batch, or of a stream its own batches."""
    if trainer.train_dataset is None:
        raise SettingError("Trainer: training requires a train_dataset. Pass train_dataset=... to Trainer.")
    dataset = pruned(trainer, trainer.train_dataset, args, "train_dataset")
    assembly, loading = assembly_for(trainer, args), loading_for(trainer, args)
    processes = trainer.engine.processes
    if is_stream(dataset):
        of_process = StreamBatches(dataset, args.train_batch_size, assembly, processes.index, processes.count)
        return loading.loader(of_process, most_workers=1)
    plan, share = plan_for(trainer, args), replace(share_of(trainer, assembly), by_work=False)
    rows = [batch for step in range(plan.steps_per_epoch) for batch in share.of(plan.batches(0, step))]
    return loading.loader(OrderedBatches(dataset, rows, assembly), sampler=range(len(rows)))
