"""The loss side of a run: the trainer's objective, from its methods and settings."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from burnish.core.errors import SettingError
from burnish.core.loss_terms import LossTerms, take_apart, terms_in
from burnish.core.types import Inputs, MicroBatch
from burnish.data.counting import LabelCounter, num_rows
from burnish.models.contract import without_adapters
from burnish.objectives.native import NativeLoss
from burnish.objectives.objective import LossOf, expected_mean
from burnish.objectives.selected import selected_loss

from .hooks import must_be_told, overridden, takes

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
        return LossOf(_native(native_loss(trainer), trainer.loss_terms), mean_over, terms=trainer.loss_terms)
    gives_number = takes(trainer.compute_loss, "num_items_in_batch")

    def compute(model: nn.Module, inputs: Inputs, number: torch.Tensor | None) -> torch.Tensor:
        more: dict[str, Any] = {"num_items_in_batch": number} if gives_number else {}
        if must_be_told(trainer.compute_loss, "return_outputs"):
            more["return_outputs"] = False
        loss, _, terms = take_apart(trainer.compute_loss(model, inputs, **more))
        trainer.loss_terms.note(terms)
        if not isinstance(loss, torch.Tensor):
            raise SettingError(f"The loss function returned {loss!r:.60}; it must return a tensor of one number.")
        if loss.numel() != 1:
            raise SettingError(
                f"The loss function returned a tensor of shape {tuple(loss.shape)}; it must return one number: take "
                "the mean, or divide the sum by num_items_in_batch."
            )
        return loss

    return LossOf(compute, mean_over, gives_number=gives_number, terms=trainer.loss_terms)


def _native(native: NativeLoss, terms: LossTerms) -> Any:
    def compute(model: nn.Module, inputs: Inputs, _: Any) -> torch.Tensor:
        loss, outputs = native(model, inputs)
        terms.note(terms_in(outputs))
        return loss

    return compute


def at_targets_only(trainer: Trainer, objective: LossOf) -> LossOf | None:
    """The same loss with the output layer computed at positions with a target; None where the user has a loss of their
    own, or the model is no language model."""
    if overridden(trainer, "compute_loss") or trainer.compute_loss_func is not None or trainer.loss_terms.names:
        return None  # a model whose loss has terms, such as the balance of its experts, computes it itself
    native = native_loss(trainer)
    selected = selected_loss(
        without_adapters(trainer.model), native.shifts_labels, native.passes_use_cache, native.label_smoothing
    )
    if selected is None:
        return None
    counted = objective.mean_over == ("next_labels" if native.shifts_labels else "labels")
    return replace(objective, compute=selected, counted=counted)


def loss_and_outputs(
    trainer: Trainer, model: nn.Module, inputs: Inputs, num_items_in_batch: Any
) -> tuple[torch.Tensor, Any]:
    """The loss of a batch, a mean or with `num_items_in_batch` its sum over that number, and the model's outputs."""
    if trainer.compute_loss_func is not None:
        return loss_by_function(trainer, model, inputs, num_items_in_batch)
    loss, outputs = native_loss(trainer)(model, inputs)
    trainer.loss_terms.note(terms_in(outputs))
    if num_items_in_batch is not None:
        loss = loss * (trainer.objective.weight(counted(trainer, inputs)) / num_items_in_batch)
    return loss, outputs


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
    loss, _, terms = take_apart(function(outputs, labels, **more))
    trainer.loss_terms.note(terms)
    return loss, outputs


def counter_for(trainer: Trainer) -> LabelCounter:
    """What counts the rows and labels of this trainer's batches."""
    return LabelCounter(tuple(trainer.label_names) or ("labels",))


def counted(trainer: Trainer, inputs: Inputs) -> MicroBatch:
    """A batch on the device with its counts, for methods that a user calls."""
    rows = num_rows(inputs)
    return MicroBatch(inputs, tuple(range(rows)), counter_for(trainer)(inputs), rows, rows)
