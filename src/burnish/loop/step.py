"""One optimizer step: the micro-batches, the gradient, the update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from burnish.core.protocols import Engine, Events, Objective
from burnish.core.randomness import DROPOUT, seed_all, seed_for
from burnish.core.types import MicroBatch, Step, StepReport

from .nonfinite import NonFiniteWatch

Backward = Callable[[MicroBatch, int], torch.Tensor]
"""(micro-batch on the device, targets of the step) to its detached part of the step's loss; adds its gradient."""


@dataclass
class StepRunner:
    """Takes steps.

    Args:
        model: as it is called in training.
        backward: loss and gradient of one micro-batch.
        seed: seed of the run, for dropout.
    """

    model: nn.Module
    objective: Objective
    engine: Engine
    events: Events
    watch: NonFiniteWatch
    backward: Backward
    seed: int

    def take(self, step: Step) -> StepReport | None:
        """Computes the loss and gradient of a step and applies it once.

        Returns None, and leaves weights and optimizer alone, where no example of the step has a target.
        """
        weights = [self.objective.weight(batch) for batch in step.micro_batches]
        num_targets = self.engine.sum_over_processes(sum(weights))
        if num_targets == 0:
            return None
        if not self.model.training:
            self.model.train()
        carrying = [batch for batch, weight in zip(step.micro_batches, weights, strict=True) if weight > 0]
        loss = self._accumulate(step, carrying, num_targets)
        grad_norm = self.engine.gradient_norm()
        report = StepReport(loss, grad_norm, torch.isfinite(loss) & torch.isfinite(grad_norm))
        self._update(report)
        return report

    def _accumulate(self, step: Step, batches: list[MicroBatch], num_targets: int) -> torch.Tensor:
        """The loss of the step, its gradient left in the weights."""
        loss = torch.zeros((), device=self.engine.device)
        for number, batch in enumerate(batches):
            seed_all(seed_for(self.seed, DROPOUT, step.epoch, step.index, number, self.engine.process_index))
            on_device = replace(batch, inputs=self.engine.to_device(batch.inputs))
            loss += self.backward(on_device, num_targets)
            if number < len(batches) - 1:
                self.events.fire("on_substep_end")
        return loss

    def _update(self, report: StepReport) -> None:
        self.engine.clip(report.grad_norm)
        self.events.fire("on_pre_optimizer_step")
        self.engine.update(self.watch.may_apply(report.finite))
        self.events.fire("on_optimizer_step")
        self.engine.clear_gradients()
