"""How losses of micro-batches become the loss of a step."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from burnish.core.loss_terms import LossTerms
from burnish.core.types import Inputs, MicroBatch

from .measured import Finding, measure, rounding, undisturbed

logger = logging.getLogger(__name__)

ComputeLoss = Callable[[nn.Module, Inputs, Any], torch.Tensor]
"""(model, inputs, number of targets or None) to a loss of one batch. The number is a tensor on the device of the
inputs, or for `LossOf.counted` an int."""


@dataclass(frozen=True)
class LossOf:
    """An objective over any function that returns a mean loss of a batch, or its share of the step's loss.

    Args:
        compute: the function. It may take things out of the inputs it is given.
        mean_over: the count that its mean is over: a field of `Counts`.
        divided: the function divides by the number of targets that it is told, so it is told that of the step.
        gives_number: tell the function a number of targets. One that is not known to divide all of its loss by it is
            told that of the micro-batch, with which its loss is a mean whatever it does with the number.
        terms: where the function puts named terms beside the loss.
        counted: tell the function the targets of the micro-batch, which the host knows, so that it need not ask the
            device how many there are.
    """

    compute: ComputeLoss
    mean_over: str
    divided: bool = False
    gives_number: bool = False
    rows_interact: bool = False
    counted: bool = False
    terms: LossTerms = field(default_factory=LossTerms)

    def weight(self, batch: MicroBatch) -> int:
        """Targets of a micro-batch."""
        count: int = getattr(batch.counts, self.mean_over)
        return count

    def step_loss(self, model: nn.Module, batch: MicroBatch, num_targets: float) -> torch.Tensor:
        """The micro-batch's part of the step's loss: its summed loss over the targets of the whole step. With
        infinitely many it is 0."""
        number: Any = self.weight(batch) if self.counted else None
        if self.gives_number:
            told = num_targets if self.divided else max(1, self.weight(batch))
            number = torch.tensor(told if math.isinf(told) else int(told), device=_device_of(batch.inputs))
        self.terms.forget()
        loss = self.compute(model, _given(batch.inputs), number)
        return loss if self.divided else loss * (self.weight(batch) / num_targets)

    def mean_loss(self, model: nn.Module, batch: MicroBatch) -> torch.Tensor:
        """The loss of a batch that is a step of its own."""
        return self.step_loss(model, batch, max(1, self.weight(batch)))

    def settled_on(self, model: nn.Module, first: MicroBatch, second: MicroBatch, both: MicroBatch) -> LossOf:
        """The same objective with what the loss does measured on two examples, alone and together."""
        with undisturbed(model):
            objective = replace(self, divided=self._divides(model, both)) if self.gives_number else self
            a, b, together = (float(objective.mean_loss(model, batch).detach()) for batch in (first, second, both))
        finding = measure(a, b, together, first.counts, second.counts, self.mean_over, rounding(model))
        return objective._with(finding, type(model).__name__)

    def _divides(self, model: nn.Module, batch: MicroBatch) -> bool:
        """Whether the loss halves when the number of targets it is told doubles."""
        number = torch.tensor(max(1, self.weight(batch)), device=_device_of(batch.inputs))
        once, terms_once = self._with_terms(model, batch, number)
        twice, terms_twice = self._with_terms(model, batch, number * 2)

        def halves(one: float, other: float) -> bool:
            return abs(one - 2 * other) <= rounding(model) * abs(one) and one != 0.0

        self.terms.divided = {name for name in terms_once if halves(terms_once[name], terms_twice.get(name, math.nan))}
        return halves(once, twice)

    def _with_terms(self, model: nn.Module, batch: MicroBatch, number: Any) -> tuple[float, dict[str, float]]:
        self.terms.forget()
        loss = float(self.compute(model, _given(batch.inputs), number).detach())
        return loss, {name: float(value) for name, value in self.terms.found.items()}

    def _with(self, finding: Finding, name: str) -> LossOf:
        if finding.mean_over is None:
            logger.warning(
                "The loss of %s is no mean over rows or labels: the loss of two examples together does not follow from "
                "their own. Its batches are left as they are, each of per_device_train_batch_size rows, and with "
                "gradient accumulation their losses are averaged by %s.",
                name,
                self.mean_over.replace("_", " "),
            )
            return replace(self, rows_interact=True)
        if finding.mean_over != self.mean_over:
            logger.info("The loss of %s is a mean over %s.", name, finding.mean_over.replace("_", " "))
        return replace(self, mean_over=finding.mean_over)


def expected_mean(shifts_labels: bool, is_regression: bool) -> str:
    """What the losses of transformers are a mean over: rows for numbers, labels other than -100 for classes."""
    if is_regression:
        return "rows"
    return "next_labels" if shifts_labels else "labels"


def loss_of(objective: LossOf, model: nn.Module, batch: MicroBatch) -> float:
    """The mean loss of a batch, without dropout."""
    with undisturbed(model):
        return float(objective.mean_loss(model, batch).detach())


def loss_and_gradient(objective: LossOf, model: nn.Module, batch: MicroBatch) -> tuple[float, float]:
    """The mean loss of a batch and the 2-norm of its gradient, without dropout. The norm is NaN where the loss has no
    gradient that can be taken apart from `backward`. The gradients of the model are left alone."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    with undisturbed(model), torch.enable_grad():
        loss = objective.mean_loss(model, batch)
        try:
            found = torch.autograd.grad(loss, weights, allow_unused=True)
        except RuntimeError:
            return float(loss.detach()), math.nan
    return float(loss.detach()), float(torch.nn.utils.get_total_norm([g for g in found if g is not None]))


def close(one: float, other: float, model: nn.Module) -> bool:
    """Whether two losses are the same up to rounding; NaN counts as the same as anything."""
    return abs(one - other) <= rounding(model) * max(abs(one), abs(other)) or one != one


def agree(objective: LossOf, model: nn.Module, one: MicroBatch, other: MicroBatch) -> bool:
    """Whether two ways of making a batch of the same examples have the same loss, up to rounding."""
    return close(loss_of(objective, model, one), loss_of(objective, model, other), model)


def _given(inputs: Inputs) -> Inputs:
    return dict(inputs) if isinstance(inputs, dict) else inputs


def _device_of(inputs: Any) -> torch.device | None:
    values = inputs.values() if isinstance(inputs, dict) else ()
    return next((value.device for value in values if isinstance(value, torch.Tensor)), None)
