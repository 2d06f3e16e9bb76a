"""The losses since the last log, kept on the device."""

from __future__ import annotations

import torch

from burnish.core.progress import TrainerState
from burnish.core.types import StepReport


class LossWindow:
    """Adds up losses on the device; `into` is the only place where the host reads them."""

    def __init__(self, device: torch.device, state: TrainerState) -> None:
        """Starts from what `state` holds of steps that were not logged yet."""
        self._sum = torch.tensor(state.unlogged_loss, device=device, dtype=torch.float32)
        self._steps = torch.tensor(state.unlogged_steps, device=device, dtype=torch.int64)
        self.grad_norm: torch.Tensor | None = None

    def add(self, report: StepReport) -> None:
        """One more step. A loss that is not finite is told elsewhere, and does not hide the others."""
        finite = torch.isfinite(report.loss)
        self._sum += torch.nan_to_num(report.loss, nan=0.0, posinf=0.0, neginf=0.0)
        self._steps += finite
        self.grad_norm = report.grad_norm

    def into(self, state: TrainerState) -> None:
        """Writes the sum and the number of steps into `state`. Waits for the device."""
        state.unlogged_loss, state.unlogged_steps = float(self._sum), int(self._steps)

    def close(self, state: TrainerState) -> dict[str, float]:
        """The numbers of the window as a log, and a new window. `loss` is left out where no step had one."""
        self.into(state)
        logs: dict[str, float] = {}
        if state.unlogged_steps:
            logs["loss"] = state.unlogged_loss / state.unlogged_steps
        if self.grad_norm is not None:
            logs["grad_norm"] = float(self.grad_norm)
        state.total_loss += state.unlogged_loss
        state.num_loss_steps += state.unlogged_steps
        state.unlogged_loss, state.unlogged_steps = 0.0, 0
        self._sum.zero_()
        self._steps.zero_()
        self.grad_norm = None
        return logs
