"""The loss side of a run: the trainer's objective, tried out on two examples before the first step."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from burnish.core.types import Inputs, MicroBatch
from burnish.data.assembly import Assembly, Rows
from burnish.data.counting import LabelCounter, num_rows
from burnish.data.sources import PlannedSource, sample_of
from burnish.models.padding_free import PaddingFree
from burnish.objectives.measured import unlike
from burnish.objectives.native import NativeLoss
from burnish.objectives.objective import LossOf, agree, close, expected_mean, loss_of

from .data import Source
from .first_step import settled_on_first_step
from .hooks import overridden, takes

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)


def native_loss(trainer: Trainer) -> NativeLoss:
    """The model's own loss, with the settings in force."""
    args, facts = trainer.settings, trainer.facts
    smoothing = args.label_smoothing_factor
    if smoothing and facts.problem_type == "multi_label_classification":
        logger.warning("label_smoothing_factor=%s does nothing for multi-label classification.", smoothing)
        smoothing = 0.0
    return NativeLoss(facts.takes("use_cache") and not args.use_cache, facts.shifts_labels, smoothing)


def objective_for(trainer: Trainer) -> LossOf:
    """The trainer's loss, before anything is measured."""
    facts = trainer.facts
    mean_over = expected_mean(facts.shifts_labels, facts.problem_type == "regression" or facts.num_labels == 1)
    if not overridden(trainer, "compute_loss") and trainer.compute_loss_func is None:
        return LossOf(_native(native_loss(trainer)), mean_over)
    gives_number = takes(trainer.compute_loss, "num_items_in_batch")

    def compute(model: nn.Module, inputs: Inputs, number: torch.Tensor | None) -> torch.Tensor:
        if gives_number:
            return trainer.compute_loss(model, inputs, num_items_in_batch=number)
        return trainer.compute_loss(model, inputs)

    return LossOf(compute, mean_over, gives_number=gives_number)


def _native(native: NativeLoss) -> Any:
    return lambda model, inputs, _: native(model, inputs)[0]


def loss_by_function(
    trainer: Trainer, model: nn.Module, inputs: Inputs, num_items_in_batch: Any
) -> tuple[torch.Tensor, Any]:
    """The loss that the user's `compute_loss_func` makes of the model's outputs, and the outputs.

    The model is called without labels, so that it does not compute a loss of its own; an encoder-decoder model reads
    them.
    """
    function = trainer.compute_loss_func
    assert function is not None
    labels = inputs.get("labels")
    reads_labels = trainer.facts.is_encoder_decoder
    given = inputs if reads_labels else {name: value for name, value in inputs.items() if name != "labels"}
    outputs = native_loss(trainer).forward(model, given)
    more = {"num_items_in_batch": num_items_in_batch} if takes(function, "num_items_in_batch") else {}
    return function(outputs, labels, **more), outputs


def counted(trainer: Trainer, inputs: Inputs) -> MicroBatch:
    """A batch on the device with its counts, for methods that a user calls."""
    rows = num_rows(inputs)
    return MicroBatch(inputs, tuple(range(rows)), LabelCounter(tuple(trainer.label_names))(inputs), rows, rows)


@dataclass(frozen=True)
class Settled:
    """What was found out on two examples before the first step."""

    source: Source
    objective: LossOf
    padding_free: PaddingFree | None = None
    """How the layers compute real tokens only, where the model can be computed that way."""


def settle(trainer: Trainer, args: Any, source: Source, objective: LossOf) -> Settled:
    """Tries out, on two examples of the data, each way of computing a step that the run may take.

    What the loss is a mean over decides how micro-batches add up; cutting padding away and computing real tokens only
    must leave the loss what it is. Of streams and a user's loaders the first step is read ahead, and shows the former.
    """
    if not isinstance(source, PlannedSource):
        return Settled(*settled_on_first_step(trainer, source, objective))
    rows = _two_unlike(sample_of(source), source.assembly)
    if rows is None:
        return Settled(source, objective)
    batch = _on_device(trainer, source.assembly.micro_batch(rows))
    objective = objective.settled_on(trainer.model, *_alone(source.assembly, batch), batch)
    assembly = source.assembly.whole() if objective.rows_interact else source.assembly
    plain = _on_device(trainer, replace(source.assembly, trim=False).micro_batch(rows))
    if plain.num_positions != batch.num_positions and not agree(objective, trainer.model, batch, plain):
        logger.warning(
            "%s gives another loss when the padding that the data brought along is cut away: its loss depends on "
            "padding. The padding stays. Tokenise without padding to be independent of it.",
            trainer.facts.name,
        )
        assembly, batch = replace(assembly, trim=False), plain
    free = _padding_free(trainer, args, objective, batch)
    if free is not None:
        budget = assembly.budget and replace(assembly.budget, padding_costs=False)
        assembly = replace(assembly, budget=budget, padding_free=True)
    return Settled(PlannedSource(source.dataset, source.plan, assembly, source.loading), objective, free)


def _padding_free(trainer: Trainer, args: Any, objective: LossOf, batch: MicroBatch) -> PaddingFree | None:
    """The model computed without padding, if that is asked for, possible, and gives the same loss."""
    on_cpu = trainer.engine.device.type == "cpu"
    wanted = on_cpu if args.padding_free is None else args.padding_free
    free = PaddingFree.of(trainer.model) if wanted and not args.torch_compile else None
    if free is None:
        return None
    plain = loss_of(objective, trainer.model, batch)
    with free.on():
        without_padding = loss_of(objective, trainer.model, batch)
    if free.attentions == 0:
        return None  # the two have one length, or the attention of the model cannot be exchanged
    if not close(plain, without_padding, trainer.model):
        logger.warning(
            "%s gives another loss (%.6g, not %.6g) when its layers leave padding out; they compute it too.",
            trainer.facts.name,
            without_padding,
            plain,
        )
        return None
    return free


def _two_unlike(rows: Rows, assembly: Assembly) -> Rows | None:
    pair = unlike([assembly.micro_batch([row]) for row in rows])
    return None if pair is None else [rows[pair[0]], rows[pair[1]]]


def _alone(assembly: Assembly, batch: MicroBatch) -> tuple[MicroBatch, MicroBatch]:
    """The two examples of a batch, each without the padding that the other needed."""
    first, second = (assembly.counted(batch.only(i), [batch.rows[i]]) for i in (0, 1))
    return first, second


def _on_device(trainer: Trainer, batch: MicroBatch) -> MicroBatch:
    return replace(batch, inputs=trainer.engine.to_device(batch.inputs))
