"""Trials before the first step where a model lies in parts: every process computes the same, on the same examples."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from burnish.core.divided import mapped
from burnish.core.types import MicroBatch
from burnish.objectives.measured import undisturbed
from burnish.objectives.objective import LossOf

if TYPE_CHECKING:
    from burnish.trainer import Trainer

T = TypeVar("T")


def findings(
    trainer: Trainer, trial: Any, objective: LossOf, find: Callable[..., T]
) -> tuple[T | None, MicroBatch | None]:
    """What the examples of one process show, found out by all of them, and one of these examples; None where no process
    has a trial.

    Args:
        trial: of this process.
        find: makes findings of an objective, a trial, and the function that computes loss and gradient.
    """
    engine = trainer.engine
    trial = shared(trainer, trial)
    if trial is None:
        return None, None
    engine.divide(trainer.model)
    with _at_rest_afterwards(trainer), engine.autocast():
        found: T = find(_through(engine, objective), trial, _scores(trainer))
    return found, trial.first


def shared(trainer: Trainer, trial: Any) -> Any:
    """The trial of the first process that has one, on the device; None where no process has one."""
    moved = None if trial is None else _moved(trial, torch.device("cpu"))
    found = next((one for one in trainer.engine.processes.all_of(moved) if one is not None), None)
    return None if found is None else _moved(found, trainer.engine.device)


def _moved(trial: Any, device: torch.device) -> Any:
    """The trial with all tensors on this device."""
    batches = {name: part for name, part in vars(trial).items() if isinstance(part, MicroBatch)}
    moved = {name: mapped(part.inputs, lambda value: value.to(device)) for name, part in batches.items()}
    return replace(trial, **{name: replace(batches[name], inputs=inputs) for name, inputs in moved.items()})


def _through(engine: Any, objective: LossOf) -> LossOf:
    """The same objective, computed where the weights are gathered."""
    plain = objective.compute
    return replace(objective, compute=lambda model, *given: engine.compute(model, lambda inner: plain(inner, *given)))


def _scores(trainer: Trainer) -> Callable[[LossOf, Any, MicroBatch], tuple[float, float]]:
    """The mean loss of a batch and the 2-norm of its gradient, as the first process has found them."""
    engine: Any = trainer.engine

    def scores(objective: LossOf, model: Any, batch: MicroBatch) -> tuple[float, float]:
        with undisturbed(model), torch.enable_grad(), engine.micro_batch(last=True):
            loss = _through(engine, objective).mean_loss(model, batch)
            engine.try_backward(loss)
        norm = engine.norm_of_gradients() / engine.num_processes
        engine.clear_gradients()
        own = float(loss.detach()), float(norm)
        found: tuple[float, float] = engine.processes.from_first(lambda: own)
        return found

    return scores


@contextlib.contextmanager
def _at_rest_afterwards(trainer: Trainer) -> Iterator[None]:
    try:
        yield
    finally:
        trainer.engine.divide(trainer.model)
