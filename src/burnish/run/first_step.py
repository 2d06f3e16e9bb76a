"""Trying a loss out where data come only once: on the first step, before it is taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from burnish.core.types import MicroBatch, Step
from burnish.data.assembly import Assembly
from burnish.data.sources import LoaderSource, StreamSource
from burnish.objectives.measured import unlike
from burnish.objectives.objective import LossOf

if TYPE_CHECKING:
    from burnish.trainer import Trainer


@dataclass
class ReadAhead:
    """A source of which one pass has begun: its steps are handed out to whoever asks for that place first."""

    source: StreamSource | LoaderSource
    place: tuple[int, int]
    ahead: Iterator[Step] | None

    @property
    def steps_per_epoch(self) -> int | None:
        return self.source.steps_per_epoch

    def steps(self, epoch: int, first: int) -> Iterator[Step]:
        ahead, self.ahead = self.ahead, None
        if ahead is not None and (epoch, first) == self.place:
            return ahead
        return self.source.steps(epoch, first)


def settled_on_first_step(
    trainer: Trainer, source: StreamSource | LoaderSource, objective: LossOf
) -> tuple[Any, LossOf]:
    """The source, its first step read and kept, and the objective after it was tried out on that step."""
    place = trainer.state.passes, trainer.state.steps_in_pass
    steps = source.steps(*place)
    first = next(steps, None)
    if first is None:
        return source, objective  # the loop says that there are no rows
    objective = objective.settled_on(trainer.model, *_tried_on(trainer, source.assembly, first))
    if objective.rows_interact and isinstance(source, StreamSource):
        return replace(source, assembly=source.assembly.whole()), objective
    return ReadAhead(source, place, chain([first], steps)), objective


def _tried_on(trainer: Trainer, assembly: Assembly, step: Step) -> tuple[MicroBatch, MicroBatch, MicroBatch]:
    """Two unlike examples of one micro-batch, alone and together; else the largest micro-batch three times, which shows
    whether a loss divides by the number it is told."""
    largest_first = sorted(step.micro_batches, key=lambda batch: -len(batch.rows))
    for batch in largest_first:
        if not isinstance(batch.inputs, dict):
            continue
        alone = [assembly.counted(batch.only(i), [row]) for i, row in enumerate(batch.rows)]
        pair = unlike(alone)
        if pair is not None:
            both = assembly.counted(_picked(batch, pair), [batch.rows[i] for i in pair])
            return tuple(_on_device(trainer, part) for part in (alone[pair[0]], alone[pair[1]], both))  # type: ignore[return-value]
    whole = _on_device(trainer, largest_first[0])
    return whole, whole, whole


def _picked(batch: MicroBatch, pair: tuple[int, int]) -> dict[str, Any]:
    """The inputs of two examples of a batch."""
    one, other = (batch.only(position) for position in pair)
    return {
        name: torch.cat([value, other[name]]) if value is not batch.inputs[name] else value
        for name, value in one.items()
    }


def _on_device(trainer: Trainer, batch: MicroBatch) -> MicroBatch:
    return replace(batch, inputs=trainer.engine.to_device(batch.inputs))
