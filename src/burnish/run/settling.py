"""What is tried out before the first step, on two examples: each way of computing a step that the run may take."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from burnish.core.types import MicroBatch, Step
from burnish.data.assembly import Assembly, Rows
from burnish.data.sources import LoaderSource, PlannedSource, StreamSource, sample_of
from burnish.models.padding_free import PaddingFree
from burnish.objectives.measured import unlike
from burnish.objectives.objective import LossOf, agree, close, loss_and_gradient, loss_of

from . import settling_together as together
from .data import Source
from .hooks import trains_in_lockstep
from .loss import at_targets_only

if TYPE_CHECKING:
    from burnish.trainer import Trainer

logger = logging.getLogger(__name__)


Scores = tuple[float, ...]
"""Numbers that two ways of computing must agree on: the loss, and the norm of its gradient where there is one."""


@dataclass(frozen=True)
class Settled:
    """What was found out before the first step."""

    source: Any
    """Where steps come from (`StepSource`)."""
    objective: LossOf
    assembly: Assembly
    """How the source makes its micro-batches."""
    padding_free: PaddingFree | None = None
    """How the layers compute real tokens only, where the model can be computed that way."""
    spare: MicroBatch | None = None
    """One that any process may compute in vain, where all must compute equally many."""


@dataclass(frozen=True)
class Trial:
    """Two unlike examples, each alone and both together, on the device."""

    first: MicroBatch
    second: MicroBatch
    both: MicroBatch
    untrimmed: MicroBatch | None = None
    """Both with all the padding that the data brought, where that is known and more."""


@dataclass(frozen=True)
class Findings:
    """What a trial has shown."""

    mean_over: str
    divided: bool
    rows_interact: bool
    trims: bool
    at_targets: bool
    padding_free: bool

    @classmethod
    def agreed(cls, of_processes: list[Findings | None]) -> Findings | None:
        """One finding of those of all processes, whose rows may differ: a way of computing is taken where it was right
        for each. None where no process has tried."""
        found = [one for one in of_processes if one is not None]
        if not found:
            return None
        return replace(
            found[0],
            rows_interact=any(one.rows_interact for one in found),
            trims=all(one.trims for one in found),
            at_targets=all(one.at_targets for one in found),
            padding_free=all(one.padding_free for one in found),
        )


def settle(trainer: Trainer, args: Any, source: Source, objective: LossOf) -> Settled:
    """Tries out, on two examples of the data, each way of computing a step that the run may take.

    What the loss is a mean over decides how micro-batches add up. Cutting padding away, computing real tokens only, and
    computing the output layer at targets only must leave the loss what it is; what does not is not done.
    """
    if isinstance(source, PlannedSource):
        reader: Any = source
        trial = trial_of_rows(trainer, source.assembly, sample_of(source))
    else:
        reader, trial = _read_ahead(trainer, source)
    if trainer.engine.divides:
        found, spare = together.findings(trainer, trial, objective, partial(_findings, trainer, args))
    else:
        if trains_in_lockstep(trainer):
            trial = together.shared(trainer, trial)
        spare = None if trial is None else trial.first
        own = None if trial is None else _findings(trainer, args, objective, trial, loss_and_gradient)
        found = Findings.agreed(trainer.engine.processes.all_of(own))
    if found is None:
        return Settled(reader, objective, source.assembly)
    settled = _settled(trainer, source.assembly, objective, found)
    return replace(settled, source=_with(reader, source, settled.assembly, settled.objective), spare=spare)


def settle_on_rows(trainer: Trainer, args: Any, assembly: Assembly, rows: Rows, objective: LossOf) -> Settled | None:
    """The same on two of these rows, for a trainer that has not trained. None where no two of them have a target."""
    trial = trial_of_rows(trainer, assembly, rows)
    if trial is None:
        return None
    return _settled(trainer, assembly, objective, _findings(trainer, args, objective, trial, _loss_alone))


def _loss_alone(objective: LossOf, model: Any, batch: MicroBatch) -> Scores:
    return (loss_of(objective, model, batch),)


def _findings(
    trainer: Trainer,
    args: Any,
    objective: LossOf,
    trial: Trial,
    scores_of: Callable[[LossOf, Any, MicroBatch], Scores],
) -> Findings:
    objective = objective.settled_on(trainer.model, trial.first, trial.second, trial.both)
    trims = trial.untrimmed is None or _may_trim(trainer, objective, trial)
    batch = trial.both if trims or trial.untrimmed is None else trial.untrimmed
    selected = at_targets_only(trainer, objective) if args.logits_at_targets and not args.torch_compile else None
    at_targets = False
    if selected is not None and "labels" in batch.inputs:
        plain = scores_of(objective, trainer.model, batch)
        way, other = "its output layer is computed at targets only", selected
        at_targets = _same(trainer, plain, lambda: scores_of(other, trainer.model, batch), way)
        objective = selected if at_targets else objective
    free = padding_free(trainer, args, lambda: scores_of(objective, trainer.model, batch))
    measured = (objective.mean_over, objective.divided, objective.rows_interact)
    return Findings(*measured, trims=trims, at_targets=at_targets, padding_free=free is not None)


def _settled(trainer: Trainer, assembly: Assembly, objective: LossOf, found: Findings) -> Settled:
    """Objective and assembly as a trial has found them."""
    objective = replace(objective, mean_over=found.mean_over, divided=found.divided, rows_interact=found.rows_interact)
    if found.rows_interact:
        assembly = assembly.whole()
    if found.at_targets:
        objective = at_targets_only(trainer, objective) or objective
    free = PaddingFree.of(trainer.model) if found.padding_free else None
    if free is not None:
        budget = assembly.budget and replace(assembly.budget, padding_costs=False)
        assembly = replace(assembly, budget=budget, padding_free=True)
    assembly = assembly if found.trims else replace(assembly, trim=False)
    trainer.trims = assembly.trim
    return Settled(None, objective, assembly, free)


def _with(reader: Any, source: Source, assembly: Assembly, objective: LossOf) -> Any:
    """The source with what was found out. Of a stream, the step that was read ahead stays as it was cut, unless its
    rows interact."""
    if isinstance(source, PlannedSource):
        return source.changed(assembly=assembly)
    changed = replace(source, assembly=assembly)
    if objective.rows_interact and isinstance(source, StreamSource):
        return changed
    return replace(reader, source=changed) if isinstance(reader, ReadAhead) else changed


def _may_trim(trainer: Trainer, objective: LossOf, trial: Trial) -> bool:
    assert trial.untrimmed is not None
    if agree(objective, trainer.model, trial.both, trial.untrimmed):
        return True
    logger.warning(
        "%s gives another loss when the padding that the data brought along is cut away: its loss depends on padding. "
        "The padding stays. Tokenise without padding to be independent of it.",
        trainer.facts.name,
    )
    return False


def padding_free(trainer: Trainer, args: Any, scores: Callable[[], Scores]) -> PaddingFree | None:
    """The model computed without padding, if that is asked for, possible, and gives the same scores: the loss and the
    size of its gradient, or other numbers that outputs at real tokens make."""
    on_cpu = trainer.engine.device.type == "cpu"
    wanted = on_cpu if args.padding_free is None else args.padding_free
    free = PaddingFree.of(trainer.model) if wanted and not args.torch_compile else None
    if free is None:
        return None

    def without_padding() -> Scores:
        with free.on():
            return scores()

    same = _same(trainer, scores(), without_padding, "its layers leave padding out")
    # no call of its attention: the two have one length, or the attention of the model cannot be exchanged
    return free if same and free.attentions else None


def _same(trainer: Trainer, plain: Scores, other: Callable[[], Scores], way: str) -> bool:
    """Whether a loss that is computed in another way, and its gradient, are the plain ones. Where they are not, or
    cannot be computed at all, that is said."""
    try:
        found = other()
    except (TypeError, ValueError, RuntimeError, LookupError, AttributeError) as error:
        logger.info("%s cannot be computed so that %s: %s: %s", trainer.facts.name, way, type(error).__name__, error)
        return False
    if all(close(one, same, trainer.model) for one, same in zip(plain, found, strict=True)):
        return True
    logger.warning(
        "%s gives another loss or gradient (%s, not %s) when %s; so it is not done.",
        trainer.facts.name,
        ", ".join(f"{score:.6g}" for score in found),
        ", ".join(f"{score:.6g}" for score in plain),
        way,
    )
    return False


def trial_of_rows(trainer: Trainer, assembly: Assembly, rows: Rows) -> Trial | None:
    """Two unlike examples of these."""
    pair = unlike([assembly.micro_batch([row]) for row in rows])
    if pair is None:
        return None
    two = [rows[i] for i in pair]
    both = assembly.micro_batch(two)
    if _holds_tensors_alone(both):
        alone = [assembly.counted(both.only(i), [both.rows[i]]) for i in (0, 1)]
    else:  # labels in a list, such as those of boxes
        alone = [assembly.micro_batch([row]) for row in two]
    plain = replace(assembly, trim=False).micro_batch(two)
    untrimmed = _on_device(trainer, plain) if plain.num_positions != both.num_positions else None
    first, second, together = (_on_device(trainer, part) for part in (*alone, both))
    return Trial(first, second, together, untrimmed)


@dataclass
class ReadAhead:
    """A source of which one pass has begun: its steps are handed out to whoever asks for that place first."""

    source: StreamSource | LoaderSource
    place: tuple[int, int]
    ahead: Iterator[Step] | None
    spent: tuple[int, int] | None = None
    """A place at which a pass was found to be at its end."""

    @property
    def steps_per_epoch(self) -> int | None:
        return self.source.steps_per_epoch

    def steps(self, epoch: int, first: int) -> Iterator[Step]:
        if (epoch, first) == self.spent:
            return iter(())
        ahead, self.ahead = self.ahead, None
        if ahead is not None and (epoch, first) == self.place:
            return ahead
        return self.source.steps(epoch, first)


def _read_ahead(trainer: Trainer, source: StreamSource | LoaderSource) -> tuple[Any, Trial | None]:
    """A source whose first step is read and kept, and a trial on that step."""
    begin = trainer.state.passes, trainer.state.steps_in_pass
    places = [begin, (begin[0] + 1, 0)] if begin[1] else [begin]  # a run may go on at the very end of a pass
    for place in places:
        steps = source.steps(*place)
        first = next(steps, None)
        if first is not None:
            spent = None if place == begin else begin
            ahead = ReadAhead(source, place, chain([first], steps), spent)
            return ahead, _trial_of_step(trainer, source.assembly, first)
    return source, None  # the loop says that there are no rows


def _trial_of_step(trainer: Trainer, assembly: Assembly, step: Step) -> Trial | None:
    """Two unlike examples of one micro-batch; else the largest micro-batch three times, which shows whether a loss
    divides by the number it is told. None where the step has none for this process."""
    if not step.micro_batches:
        return None
    largest_first = sorted(step.micro_batches, key=lambda batch: -len(batch.rows))
    for batch in largest_first:
        if not _holds_tensors_alone(batch):
            continue
        alone = [assembly.counted(batch.only(i), [row]) for i, row in enumerate(batch.rows)]
        pair = unlike(alone)
        if pair is not None:
            both = assembly.counted(_picked(batch, pair), [batch.rows[i] for i in pair])
            first, second, together = (_on_device(trainer, part) for part in (*(alone[i] for i in pair), both))
            return Trial(first, second, together)
    whole = _on_device(trainer, largest_first[0])
    return Trial(whole, whole, whole)


def _holds_tensors_alone(batch: MicroBatch) -> bool:
    """Whether examples can be taken out of a batch: not where something is a list, which may have an entry for each."""
    values = batch.inputs.values() if isinstance(batch.inputs, dict) else [()]
    return not any(isinstance(value, (dict, list, tuple)) for value in values)


def _picked(batch: MicroBatch, pair: tuple[int, int]) -> dict[str, Any]:
    """The inputs of two examples of a batch."""
    one, other = (batch.only(position) for position in pair)
    return {
        name: torch.cat([value, other[name]]) if value is not batch.inputs[name] else value
        for name, value in one.items()
    }


def _on_device(trainer: Trainer, batch: MicroBatch) -> MicroBatch:
    return replace(batch, inputs=trainer.engine.to_device(batch.inputs))
