"""The parts of burnish for a training loop of one's own, alone or with accelerate: see `examples/native_loop.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .checkpoint import find, restore, run_id, store, weights
from .core.errors import DataError, SettingError
from .core.progress import TrainerState
from .core.types import Inputs, MicroBatch, Step
from .data.assembly import Assembly, reading_draws
from .data.batches import is_stream
from .data.collator_facts import draws_randomness
from .data.counting import LabelCounter
from .data.dataset_lengths import lengths_of
from .data.microbatches import Budget
from .data.order import Shuffled
from .data.plan import Plan
from .data.row_draws import by_row
from .data.share import Share
from .data.sources import Loading, PlannedSource, sample_of
from .models.contract import ModelFacts, facts_of
from .objectives.native import NativeLoss
from .objectives.objective import LossOf, expected_mean

CALL_COST = 64
"""Positions that one more micro-batch costs (see `Budget`)."""


class TrainingSteps:
    """The steps of a dataset: which examples form each of them, cut into micro-batches by length, and of several
    processes the part of this one. All of it follows from (seed, pass, step), whoever asks, and from where on.

    Args:
        dataset: rows with a length, by number; with `input_ids`, else batches are left as they are.
        collate: a list of examples to keyword arguments of the model.
        batch_size: examples of a step over all processes.
        model: that is trained, for what it takes.
        token_budget: positions of a micro-batch at the most; a longer row goes alone.
        seed: of the order, and of what collator and dataset draw.
        process: number of this process, from 0.
        num_processes: of the run.

    Raises:
        SettingError: the dataset is a stream, or the numbers make no sense.
    """

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[list[Any]], Any],
        batch_size: int,
        model: nn.Module,
        *,
        token_budget: int = 1024,
        seed: int = 42,
        process: int = 0,
        num_processes: int = 1,
    ) -> None:
        if is_stream(dataset):
            raise SettingError("TrainingSteps needs a dataset whose rows are found by number; this one is a stream.")
        if batch_size < 1 or not 0 <= process < num_processes:
            raise SettingError(
                f"TrainingSteps: batch_size={batch_size}, process={process}, num_processes={num_processes}. A step has "
                "1 example or more, and processes are counted from 0."
            )
        facts = facts_of(model)
        by_work = not facts.rows_interact
        collate_rows = by_row(collate)
        assembly = Assembly(
            collate=collate,
            count=LabelCounter(facts.label_names or ("labels",)),
            budget=Budget(token_budget, CALL_COST) if by_work else None,
            is_encoder_decoder=facts.is_encoder_decoder,
            shifts_labels=facts.shifts_labels,
            seed=seed,
            collate_rows=collate_rows,
            collation_draws=collate_rows is None and draws_randomness(collate),
            examples_draw=reading_draws(dataset),
            process=process,
        )
        plan = Plan(len(dataset), batch_size, 1, Shuffled(len(dataset), seed))
        lengths = lengths_of(dataset, facts.is_encoder_decoder) if num_processes > 1 else None
        self._source = PlannedSource(
            dataset, plan, assembly, Loading(), Share(process, num_processes, by_work), lengths
        )

    def __len__(self) -> int:
        """Steps of a pass."""
        return self._source.plan.steps_per_epoch

    def of_pass(self, epoch: int, first: int = 0) -> Iterator[Step]:
        """The steps of pass `epoch` from step `first` on. What comes before is not read."""
        return self._source.steps(epoch, first)

    def two_examples(self) -> tuple[MicroBatch, MicroBatch, MicroBatch]:
        """One of the first rows, another one, and both together.

        Raises:
            DataError: there are fewer than two rows.
        """
        rows = sample_of(self._source, most=2)
        if len(rows) < 2:
            raise DataError(f"The dataset has {len(rows)} rows; two are needed to see what its loss is a mean over.")
        make = self._source.assembly.micro_batch
        return make(rows[:1]), make(rows[1:]), make(rows)


@dataclass(frozen=True)
class StepLoss:
    """The loss of a model as sums, so that a step has one loss however it is cut: count the targets of all its
    micro-batches first (`targets`), over all processes, then divide each part by that number (`__call__`)."""

    objective: LossOf

    @classmethod
    def of(cls, model: nn.Module, steps: TrainingSteps) -> StepLoss:
        """Of a model that returns its loss. What that is a mean over is measured, on two examples of the dataset.

        Raises:
            SettingError: the loss of a batch does not follow from those of its rows, so that a step cannot be cut.
        """
        facts = facts_of(model)
        on_device = [_on(batch, _device(model)) for batch in steps.two_examples()]
        objective = LossOf(_native(facts), _expected(facts)).settled_on(model, *on_device)
        if objective.rows_interact and not facts.rows_interact:
            raise SettingError(f"The loss of {facts.name} is no mean over rows or labels: its batches cannot be cut.")
        return cls(objective)

    def targets(self, step: Step) -> int:
        """Rows or labels of this process's part of a step that the loss is a mean over."""
        return sum(map(self.objective.weight, step.micro_batches))

    def __call__(self, model: nn.Module, batch: MicroBatch, num_targets: float) -> torch.Tensor:
        """What a micro-batch adds to the loss of a step: its summed loss over the step's targets (0-dimensional)."""
        return self.objective.step_loss(model, _on(batch, _device(model)), num_targets)


def save_checkpoint(
    folder: Path | str,
    step: int,
    model: nn.Module,
    optimizer: Any,
    *,
    scheduler: Any = None,
    processing_class: Any = None,
    steps_in_pass: int = 0,
    passes: int = 0,
) -> Path:
    """Writes `checkpoint-<step>` into a folder, whole or not at all, on one process. A `Trainer` can go on from it.

    Raises:
        CheckpointError: it cannot be written.
    """
    state = TrainerState(global_step=step, passes=passes, steps_in_pass=steps_in_pass)
    newest = find.checkpoints(folder)
    run = run_id.run_of(newest[-1]) if newest else run_id.new_run_id()
    snapshot = store.Snapshot(model, state, run, processing_class, optimizer, scheduler)
    return store.write(folder, step, snapshot)


def load_checkpoint(folder: Path | str, model: nn.Module, optimizer: Any, scheduler: Any = None) -> TrainerState:
    """Fills model and optimizer from the newest good checkpoint of a folder. Gives where the run stands: at the very
    beginning where there is none.

    Raises:
        CheckpointError: the checkpoint is of another model or optimizer.
    """
    checkpoint = find.newest_good(folder, run_id=None)
    if checkpoint is None:
        return TrainerState()
    weights.load_weights(model, checkpoint)
    restore.restore_optimizer(checkpoint, optimizer, scheduler)
    return restore.read_state(checkpoint)


def _native(facts: ModelFacts) -> Callable[[nn.Module, Inputs, Any], torch.Tensor]:
    native = NativeLoss(facts.takes("use_cache"), facts.shifts_labels)
    return lambda model, inputs, _: native(model, inputs)[0]


def _expected(facts: ModelFacts) -> str:
    return expected_mean(facts.shifts_labels, facts.problem_type == "regression" or facts.num_labels == 1)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _on(batch: MicroBatch, device: torch.device) -> MicroBatch:
    """The same batch on the device."""
    moved = {
        name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in batch.inputs.items()
    }
    return MicroBatch(moved, batch.rows, batch.counts, batch.num_tokens, batch.num_positions)
