"""One optimizer step: the micro-batches, the gradient, the update."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import nn

from burnish.core.errors import OutOfMemoryError
from burnish.core.loss_terms import LossTerms
from burnish.core.protocols import Engine, Events, Objective
from burnish.core.randomness import DROPOUT, seed_all, seed_for
from burnish.core.types import MicroBatch, Step, StepReport

from .agreement import Totals, Work
from .memory import MemoryLimit, attempted, too_late
from .nonfinite import NonFiniteWatch

Backward = Callable[[MicroBatch, float], torch.Tensor]
"""(micro-batch on the device, targets of the step) to its detached part of the step's loss; adds its gradient. The
number of targets is infinite for a micro-batch that only stands in: its part is 0."""


@dataclass
class StepRunner:
    """Takes steps.

    Args:
        model: as it is called in training.
        backward: loss and gradient of one micro-batch.
        seed: seed of the run, for dropout.
        limit: how much goes through the model at once, once memory ran out.
        terms: where `backward` puts the terms of the loss.
    """

    model: nn.Module
    objective: Objective
    engine: Engine
    events: Events
    watch: NonFiniteWatch
    backward: Backward
    seed: int
    limit: MemoryLimit = field(default_factory=MemoryLimit)
    spare: MicroBatch | None = None
    """A micro-batch with targets to compute in vain where the step has none for this process: its data may have come to
    an end. The last one by default."""
    terms: LossTerms = field(default_factory=LossTerms)
    lockstep: bool = False
    """Whether every process computes as many micro-batches as the one that has most."""

    def work_of(self, step: Step) -> Work:
        """What this process has to compute in a step."""
        batches = self._with_targets(step)
        return Work(sum(map(self.objective.weight, batches)), len(batches))

    def take(self, step: Step, totals: Totals | None = None) -> StepReport | None:
        """Computes the loss and gradient of a step and applies it once.

        Returns None, and leaves weights and optimizer alone, where no example of the step has a target.

        Args:
            totals: what the step holds over all processes; by default what it holds here.

        Raises:
            OutOfMemoryError: a single row, or a batch that must stay whole, does not fit into memory.
        """
        totals = totals or Totals.of(step, self.work_of(step), flops=0.0)
        if totals.targets == 0:
            return None
        if not self.model.training:
            self.model.train()
        self.engine.begin_step()
        loss = self.engine.completed(self._accumulate_within_memory(step, totals))
        grad_norm = self.engine.gradient_norm()
        finite = torch.isfinite(loss) & torch.isfinite(grad_norm)
        report = StepReport(loss, grad_norm, finite, self.terms.of_step())
        self._update(report)
        return report

    def _with_targets(self, step: Step) -> list[MicroBatch]:
        return [batch for batch in self.limit.cut(step.micro_batches) if self.objective.weight(batch) > 0]

    def _accumulate_within_memory(self, step: Step, totals: Totals) -> torch.Tensor:
        """The loss of the step, its gradient left in the weights. Where memory runs out, the step begins again from its
        first micro-batch, cut smaller: its gradient is that of the step, whatever was tried before."""
        while True:
            loss = self._accumulate(step, self._with_targets(step), totals)
            if loss is not None:
                self.limit.tell(step, self.engine.process_index)
                return loss

    def _accumulate(self, step: Step, batches: list[MicroBatch], totals: Totals) -> torch.Tensor | None:
        """The loss of these micro-batches, their gradient left in the weights; None where memory ran out."""
        self.terms.clear()
        loss = torch.zeros((), device=self.engine.device)
        work = [(batch, float(totals.targets)) for batch in batches] + self._stand_ins(step, batches, totals)
        if not work:
            self.engine.idle()
        for number, (batch, num_targets) in enumerate(work):
            seed_all(seed_for(self.seed, DROPOUT, step.epoch, step.index, number, self.engine.process_index))
            with self.engine.micro_batch(last=number == len(work) - 1):
                part, words = attempted(self.engine, partial(self._backward, batch, num_targets))
            if part is None:
                self._make_room(batch, words)
                return None
            loss += part
            if number < len(work) - 1:
                self.events.fire("on_substep_end")
        return loss

    def _stand_ins(self, step: Step, batches: list[MicroBatch], totals: Totals) -> list[tuple[MicroBatch, float]]:
        """What is computed in vain, where every process must compute as many micro-batches as the one that has most:
        the smallest of its own, or of another process."""
        missing = totals.batches - len(batches) if self.lockstep else 0
        smallest = min(batches, key=lambda batch: batch.num_positions, default=step.stand_in or self.spare)
        self.spare = smallest or self.spare
        return [] if smallest is None else [(smallest, math.inf)] * missing

    def _make_room(self, failed: MicroBatch, words: str) -> None:
        """After a micro-batch that did not fit: memory is given back, and the limit lowered.

        Raises:
            OutOfMemoryError: the step cannot be begun again.
        """
        may_redo = self.engine.may_redo
        self.engine.clear_gradients()
        self.engine.free_memory()
        if not may_redo:
            raise OutOfMemoryError(too_late(failed, words))
        self.limit.lower(failed, words)

    def _backward(self, batch: MicroBatch, num_targets: float) -> torch.Tensor:
        return self.backward(replace(batch, inputs=self.engine.to_device(batch.inputs)), num_targets)

    def _update(self, report: StepReport) -> None:
        self.engine.clip(report.grad_norm)
        self.events.fire("on_pre_optimizer_step")
        self.engine.update(self.watch.may_apply(report.finite))
        self.events.fire("on_optimizer_step")
        self.engine.clear_gradients()
