"""Which examples form which step: a pure function of (order, pass, step)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from .order import Order


@dataclass(frozen=True)
class Plan:
    """The steps of a run over rows with a known number.

    Args:
        num_rows: rows of the dataset.
        batch_size: examples of a batch over all processes (per-device size × processes).
        accumulation: batches of a step. The last step of a pass may have fewer.
        order: the rows of a pass in order.
        drop_last: leave out rows that do not fill a batch at the end of a pass.
        origin: (pass, row) from where on steps have this size, in a run that began with another. Rows of that pass
            before this one, in its order, are in no step; the step that it falls into is shorter.
    """

    num_rows: int
    batch_size: int
    accumulation: int
    order: Order
    drop_last: bool = False
    origin: tuple[int, int] = (0, 0)
    _orders: dict[int, Sequence[int]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def step_size(self) -> int:
        """Examples of a full step."""
        return self.batch_size * self.accumulation

    @property
    def rows_per_epoch(self) -> int:
        return self.num_rows - self.num_rows % self.batch_size if self.drop_last else self.num_rows

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.rows_per_epoch / self.step_size)

    def batches(self, epoch: int, step: int) -> list[list[int]]:
        """The row numbers of one step, batch by batch.

        Raises:
            IndexError: the pass has no such step.
        """
        if not 0 <= step < self.steps_per_epoch:
            raise IndexError(f"pass {epoch} has {self.steps_per_epoch} steps, there is no step {step}")
        end = min((step + 1) * self.step_size, self.rows_per_epoch)
        start = max(step * self.step_size, self.origin[1] if epoch == self.origin[0] else 0)
        order = self._order(epoch)
        return [list(order[i : min(i + self.batch_size, end)]) for i in range(start, end, self.batch_size)]

    def rows(self, epoch: int, step: int) -> list[int]:
        """The row numbers of one step, in plan order."""
        return [row for batch in self.batches(epoch, step) for row in batch]

    def _order(self, epoch: int) -> Sequence[int]:
        """The last order drawn is kept: a pass asks for it once a step."""
        if epoch not in self._orders:
            self._orders.clear()
            self._orders[epoch] = self.order(epoch)
        return self._orders[epoch]
