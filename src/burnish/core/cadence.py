"""When something is due: a function of the step, asked by name."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Cadence:
    """A rhythm in optimizer steps.

    Args:
        strategy: "no", "steps", "epoch", or "best" (never due by itself; a new best asks for it).
        every: steps between two times; counts for "steps" only.
        first: also due at step 1.
        last: also due at the last step.
        delay: not due before this step ("steps") or epoch ("epoch").
    """

    strategy: str
    every: int = 1
    first: bool = False
    last: bool = False
    delay: float = 0

    def due_at_step(self, step: int, last_step: int) -> bool:
        """Whether it is due after optimizer step `step` (counted from 1) of `last_step`."""
        if self.strategy != "steps" or step < self.delay:
            return False
        if (self.first and step == 1) or (self.last and step >= last_step):
            return True
        return self.every > 0 and step % self.every == 0

    def due_at_epoch(self, epoch: float) -> bool:
        """Whether it is due at the end of a pass, after `epoch` passes."""
        return self.strategy == "epoch" and epoch >= self.delay


def in_steps(every: float | None, max_steps: int, otherwise: int) -> int:
    """Steps between two times: a share of the run below 1, a number of steps from 1, `otherwise` where not set."""
    if every is None:
        return otherwise
    if 0 < every < 1:
        return max(1, math.ceil(every * max_steps))
    return int(every)
