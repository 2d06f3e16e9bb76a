"""What the processes of a run tell each other in each step: one exchange of numbers on the host, before it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from burnish.core.processes import Alone
from burnish.core.progress import TrainerControl
from burnish.core.protocols import Processes, StopRequest
from burnish.core.types import Step

FLAGS = tuple(flag.name for flag in fields(TrainerControl))


class Work(NamedTuple):
    """What a process has to compute in a step."""

    targets: int
    batches: int
    """Micro-batches that have a target."""


class Totals(NamedTuple):
    """What a step holds over all processes."""

    targets: int
    examples: int
    tokens: int
    positions: int
    positions_plain: int
    flops: float
    batches: int = 0
    """Micro-batches of the process that has the most."""

    @classmethod
    def of(cls, step: Step, work: Work, flops: float) -> Totals:
        """Of one process."""
        return cls(
            targets=work.targets,
            examples=step.num_examples,
            tokens=step.num_tokens,
            positions=step.num_positions,
            positions_plain=step.num_positions_plain,
            flops=flops,
            batches=work.batches,
        )

    @classmethod
    def over(cls, rows: list[Totals]) -> Totals:
        """Of all processes."""
        return cls(
            targets=int(sum(row.targets for row in rows)),
            examples=int(sum(row.examples for row in rows)),
            tokens=int(sum(row.tokens for row in rows)),
            positions=int(sum(row.positions for row in rows)),
            positions_plain=int(sum(row.positions_plain for row in rows)),
            flops=sum(row.flops for row in rows),
            batches=int(max(row.batches for row in rows)),
        )


@dataclass
class Agreement:
    """Makes one answer of those that the processes have.

    Args:
        work_of: what this process has to compute in a step.
        flops_of: floating-point operations of its part.
        stop: a wish from outside to end, that may have come to any of the processes.
        seen_bad: whether this process knows by now that a step was not finite. A step is, or is not, on all processes
            alike; each learns of it when its device has got that far.
        free_callbacks: whether callbacks of the user's own listen, which may ask for different things on different
            processes.
    """

    work_of: Callable[[Step], Work]
    flops_of: Callable[[Step], float]
    stop: StopRequest
    processes: Processes = field(default_factory=Alone)
    seen_bad: Callable[[], bool] = lambda: False
    free_callbacks: Callable[[], bool] = lambda: False
    stop_signal: int | None = None
    """Number of the signal that all processes know of."""
    is_bad: bool = False
    """Whether one of them has seen a step that was not finite."""
    _asks: bool = False

    def begin(self, control: TrainerControl) -> None:
        """Before the first step."""
        if self.processes.count > 1:
            self._asks = any(row[0] for row in self.processes.table([float(self.free_callbacks())]))
            self.on_control(control)

    def on(self, step: Step | None) -> Totals | None:
        """What the next step holds. A process that has none any more gives None; None where all do.

        Raises:
            ProcessError: another process has failed.
        """
        own = None if step is None else Totals.of(step, self.work_of(step), self.flops_of(step))
        if self.processes.count == 1:
            return own
        of_run = (float(self.stop.requested or 0), float(self.seen_bad()), float(self.free_callbacks()))
        numbers = own or (0,) * len(Totals._fields)
        rows = self.processes.table((float(own is not None), *of_run, *numbers))
        here, signals, bad, free = (max(column) for column in list(zip(*rows, strict=True))[:4])
        self.stop_signal = int(signals) or None
        self.is_bad, self._asks = bool(bad), bool(free)
        return Totals.over([Totals(*row[4:]) for row in rows]) if here else None  # type: ignore[arg-type]

    def on_control(self, control: TrainerControl) -> None:
        """Makes what is asked for the same on all processes: what any of them asks for. Where no callback of a user's
        own listens on any of them, it is so already."""
        if not self._asks:
            return
        own = [float(getattr(control, flag)) for flag in FLAGS]
        rows = self.processes.table([*own, float(self.stop.requested or 0)])
        *asked, signals = (max(column) for column in zip(*rows, strict=True))
        for flag, value in zip(FLAGS, asked, strict=True):
            setattr(control, flag, bool(value))
        self.stop_signal = int(signals) or self.stop_signal

    @property
    def asked_by(self) -> int | None:
        """The number of the signal by which the run ends after this step; None where there is none, or where not all
        processes know of it yet."""
        return self.stop.requested if self.processes.count == 1 else self.stop_signal
