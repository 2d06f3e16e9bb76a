"""One optimizer step: the micro-batches, the gradient, the update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import nn

from burnish.core.protocols import Engine, Events, Objective
from burnish.core.randomness import DROPOUT, seed_all, seed_for
from burnish.core.types import MicroBatch, Step, StepReport

from .memory import MemoryLimit, attempted
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
        limit: how much goes through the model at once, once memory ran out.
    """

    model: nn.Module
    objective: Objective
    engine: Engine
    events: Events
    watch: NonFiniteWatch
    backward: Backward
    seed: int
    limit: MemoryLimit = field(default_factory=MemoryLimit)

    def take(self, step: Step) -> StepReport | None:
        """Computes the loss and gradient of a step and applies it once.

        Returns None, and leaves weights and optimizer alone, where no example of the step has a target.

        Raises:
            OutOfMemoryError: a single row, or a batch that must stay whole, does not fit into memory.
        """
        num_targets = self.engine.sum_over_processes(sum(map(self.objective.weight, step.micro_batches)))
        if num_targets == 0:
            return None
        if not self.model.training:
            self.model.train()
        loss = self._accumulate_within_memory(step, num_targets)
        grad_norm = self.engine.gradient_norm()
        report = StepReport(loss, grad_norm, torch.isfinite(loss) & torch.isfinite(grad_norm))
        self._update(report)
        return report

    def _accumulate_within_memory(self, step: Step, num_targets: int) -> torch.Tensor:
        """The loss of the step, its gradient left in the weights. Where memory runs out, the step begins again from its
        first micro-batch, cut smaller: its gradient is that of the step, whatever was tried before."""
        while True:
            batches = [batch for batch in self.limit.cut(step.micro_batches) if self.objective.weight(batch) > 0]
            loss = self._accumulate(step, batches, num_targets)
            if loss is not None:
                self.limit.tell(step)
                return loss

    def _accumulate(self, step: Step, batches: list[MicroBatch], num_targets: int) -> torch.Tensor | None:
        """The loss of these micro-batches, their gradient left in the weights; None where memory ran out."""
        loss = torch.zeros((), device=self.engine.device)
        for number, batch in enumerate(batches):
            seed_all(seed_for(self.seed, DROPOUT, step.epoch, step.index, number, self.engine.process_index))
            part, words = attempted(self.engine, partial(self._backward, batch, num_targets))
            if part is None:
                self.engine.clear_gradients()
                self.engine.free_memory()
                self.limit.lower(batch, words)
                return None
            loss += part
            if number < len(batches) - 1:
                self.events.fire("on_substep_end")
        return loss

    def _backward(self, batch: MicroBatch, num_targets: int) -> torch.Tensor:
        return self.backward(replace(batch, inputs=self.engine.to_device(batch.inputs)), num_targets)

    def _update(self, report: StepReport) -> None:
        self.engine.clip(report.grad_norm)
        self.events.fire("on_pre_optimizer_step")
        self.engine.update(self.watch.may_apply(report.finite))
        self.events.fire("on_optimizer_step")
        self.engine.clear_gradients()
