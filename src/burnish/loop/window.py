"""The losses since the last log, kept on the device."""

from __future__ import annotations

from typing import Any

import torch

from burnish.core.processes import Alone
from burnish.core.progress import TrainerState
from burnish.core.protocols import Processes
from burnish.core.types import StepReport


class LossWindow:
    """Adds up losses and their terms on the device; `into` is the only place where the host reads them."""

    def __init__(self, device: torch.device, state: TrainerState, processes: Processes | None = None) -> None:
        """Starts from what `state` holds of steps that were not logged yet."""
        self._processes = processes or Alone()
        self._terms: dict[str, Any] = {}  # of this process; what the state holds is of all, and the first has it
        if self._processes.index == 0:
            self._terms = {name: tuple(sums) for name, sums in state.unlogged_terms.items()}
        self._sum = torch.tensor(state.unlogged_loss, device=device, dtype=torch.float32)
        self._steps = torch.tensor(state.unlogged_steps, device=device, dtype=torch.int64)
        self.grad_norm: torch.Tensor | None = None

    def add(self, report: StepReport) -> None:
        """One more step. A loss that is not finite is told elsewhere, and does not hide the others."""
        finite = torch.isfinite(report.loss)
        self._sum += torch.nan_to_num(report.loss, nan=0.0, posinf=0.0, neginf=0.0)
        self._steps += finite
        for name, (total, share) in report.terms.items():
            before = self._terms.get(name, (0.0, 0.0))
            self._terms[name] = (before[0] + total, before[1] + share)
        self.grad_norm = report.grad_norm

    def into(self, state: TrainerState) -> None:
        """Writes the sums and the number of steps into `state`. Waits for the device; all processes call it."""
        state.unlogged_loss, state.unlogged_steps = float(self._sum), int(self._steps)
        own = {name: (float(total), float(share)) for name, (total, share) in self._terms.items()}
        state.unlogged_terms = {}
        for of_process in self._processes.all_of(own):
            for name, (total, share) in of_process.items():
                before = state.unlogged_terms.get(name, [0.0, 0.0])
                state.unlogged_terms[name] = [before[0] + total, before[1] + share]

    def close(self, state: TrainerState) -> dict[str, float]:
        """The numbers of the window as a log, and a new window. `loss` is left out where no step had one."""
        self.into(state)
        logs: dict[str, float] = {}
        if state.unlogged_steps:
            logs["loss"] = state.unlogged_loss / state.unlogged_steps
        logs |= {name: total / share for name, (total, share) in state.unlogged_terms.items() if share}
        if self.grad_norm is not None:
            logs["grad_norm"] = float(self.grad_norm)
        state.total_loss += state.unlogged_loss
        state.num_loss_steps += state.unlogged_steps
        state.unlogged_loss, state.unlogged_steps, state.unlogged_terms = 0.0, 0, {}
        self._terms = {}
        self._sum.zero_()
        self._steps.zero_()
        self.grad_norm = None
        return logs
