"""Losses and gradients that are NaN or infinite: never applied, never hidden.

Whether an update is applied is decided on the device. The host learns of it when the device has got that far, without
waiting: on the CPU at once, on CUDA through an event that is asked and not waited for, elsewhere at the next log.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from burnish.core.errors import NonFiniteError
from burnish.core.modes import in_evaluation
from burnish.core.processes import Alone
from burnish.core.protocols import Engine, Objective, Processes
from burnish.core.types import Counts, Inputs, MicroBatch, Step, StepReport

logger = logging.getLogger(__name__)

POLICIES = ("stop", "skip", "ignore")


@dataclass
class _Pending:
    """A step whose outcome the host does not know yet."""

    number: int
    step: Step
    report: StepReport
    flag: torch.Tensor
    arrived: Any

    def known(self) -> bool:
        return self.arrived is None or bool(self.arrived.query())


class NonFiniteWatch:
    """Decides on the device whether a step is applied, and tells the host when one was not finite.

    Args:
        policy: "stop" ends the run with the weights as they were before the step; "skip" leaves the step out and goes
            on; "ignore" applies it all the same. Each is told.
        rows_of: names those rows of a step on this process whose loss is not finite; None where they are not looked
            for, which is so on all processes.
        processes: those of the run. Several tell of a step at the same moment, since all look for its rows: when
            somebody asks them to `look`.
        updates_early: whether weights are updated before all gradients are known.
    """

    def __init__(
        self,
        policy: str,
        device: torch.device,
        rows_of: Callable[[Step], list[int] | None],
        processes: Processes | None = None,
        updates_early: bool = False,
    ) -> None:
        assert policy in POLICIES, policy
        self.policy, self.device, self.rows_of = policy, device, rows_of
        self.processes, self.updates_early = processes or Alone(), updates_early
        self._stopped = torch.zeros((), dtype=torch.bool, device=device)
        self._pending: list[_Pending] = []

    def may_apply(self, finite: torch.Tensor) -> torch.Tensor:
        """Whether to apply a step (bool, on the device). Under "stop", nothing is applied after the first bad step,
        so that the weights are those before it however late the host learns of it."""
        if self.policy == "ignore":
            return torch.ones_like(finite)
        if self.policy == "skip":
            return finite
        self._stopped |= ~finite
        return ~self._stopped

    def note(self, number: int, step: Step, report: StepReport) -> None:
        """Takes down the outcome of optimizer step `number`, and looks at those that are known by now."""
        if self.device.type == "cuda":
            flag = torch.empty((), dtype=torch.bool, pin_memory=True).copy_(report.finite, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
            self._pending.append(_Pending(number, step, report, flag, arrived))
        else:
            self._pending.append(_Pending(number, step, report, report.finite, None))
        if self.device.type == "cpu" or (self.device.type == "cuda" and self.processes.count == 1):
            self.look(wait=False)

    def seen_bad(self) -> bool:
        """Whether a step is known not to be finite, that was not told yet. Does not wait."""
        return any(pending.known() and not bool(pending.flag) for pending in self._pending)

    def look(self, wait: bool = True) -> None:
        """Looks at the outcomes that are known, or waits for all of them.

        Raises:
            NonFiniteError: one was not finite, under the policy "stop".
        """
        while self._pending and (wait or self._pending[0].known()):
            first = self._pending.pop(0)
            if wait and first.arrived is not None:
                first.arrived.synchronize()
            if not bool(first.flag):
                self._tell(first)

    def _tell(self, bad: _Pending) -> None:
        message = self._describe(bad)
        if self.policy == "stop":
            self._pending.clear()
            if self.updates_early and math.isfinite(float(bad.report.loss)):
                raise NonFiniteError(
                    f"{message} With optim_in_backward=True this is found out weight by weight: those whose gradients "
                    "came before have taken the step, the others have not. Go on from the last checkpoint, with "
                    "optim_in_backward=False and nonfinite_policy='skip' to leave such steps out, or a lower learning "
                    "rate."
                )
            raise NonFiniteError(
                f"{message} The update was not applied: the weights are those after step {bad.number - 1}. Look at "
                "these rows, lower the learning rate, or set nonfinite_policy='skip' to leave such steps out."
            )
        applied = "was applied, as nonfinite_policy='ignore' asks" if self.policy == "ignore" else "was left out"
        logger.warning("%s The step %s.", message, applied)

    def _describe(self, bad: _Pending) -> str:
        loss, norm = float(bad.report.loss), float(bad.report.grad_norm)
        where = f"step {bad.number} (pass {bad.step.epoch + 1}), rows {self._of_all(bad.step.rows)}"
        if math.isfinite(loss):
            return f"The gradient is not finite (norm {norm}, loss {loss:.6g}) in {where}."
        if self.policy == "ignore":  # the weights have taken the step: by now every row may be NaN
            return f"The loss is not finite ({loss}) in {where}."
        own = self.rows_of(bad.step)
        rows = self._of_all(own or [])
        if rows:
            return f"The loss is not finite ({loss}) in {where}: it is NaN or infinite for {_named(rows)}."
        if own is None:
            return f"The loss is not finite ({loss}) in {where}."
        return f"The loss is not finite ({loss}) in {where}; alone, each of its rows has a finite loss."

    def _of_all(self, rows: list[int]) -> list[int]:
        """The rows of every process."""
        return sorted(row for part in self.processes.all_of(rows) for row in part)


def nonfinite_rows(
    model: nn.Module,
    objective: Objective,
    engine: Engine,
    step: Step,
    count: Callable[[Inputs], Counts] | None = None,
    together: Processes | None = None,
) -> list[int] | None:
    """The rows of a step whose own loss is NaN or infinite, each put through the model alone.

    Args:
        count: says what a batch holds: a row without a target has no loss, and its mean, 0 / 0, accuses nobody.
        together: processes that must compute equally many rows; None is returned where one of them has no row.
    """
    rows = [one for batch in step.micro_batches for one in _alone(batch, count) if objective.weight(one) > 0]
    counts = [len(rows)] if together is None else together.all_of(len(rows))
    if together is not None and min(counts) == 0:
        return None
    in_vain = rows[-1:] * (max(counts) - len(rows))
    found = []
    with in_evaluation(model), torch.no_grad():
        for one in rows + in_vain:
            on_device = replace(one, inputs=engine.to_device(one.inputs))
            if not bool(torch.isfinite(objective.step_loss(model, on_device, 1))):
                found.append(one.rows[0])
    return sorted(set(found))


def _alone(batch: MicroBatch, count: Callable[[Inputs], Counts] | None) -> Iterator[MicroBatch]:
    for position, row in enumerate(batch.rows):
        inputs = batch.only(position)
        yield replace(batch, inputs=inputs, rows=(row,), counts=batch.counts if count is None else count(inputs))


def _named(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:10]))
    return f"row {shown}" if len(rows) == 1 else f"rows {shown}{' and more' if len(rows) > 10 else ''}"
