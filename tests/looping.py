"""A regression that trains in microseconds, and the parts of a loop around it, for the tests of the loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from torch import nn

from burnish.core.progress import TrainerControl, TrainerState
from burnish.core.types import Counts, Inputs, MicroBatch, Step
from burnish.engines.precision import Precision
from burnish.engines.single import SingleEngine
from burnish.loop.agreement import Agreement
from burnish.loop.nonfinite import NonFiniteWatch, nonfinite_rows
from burnish.loop.step import StepRunner
from burnish.loop.training import TrainingLoop
from burnish.loop.window import LossWindow
from burnish.objectives.objective import LossOf

NO_TARGET = -100.0


def counts_of(inputs: Inputs) -> Counts:
    """Targets are rows whose y is not NO_TARGET."""
    targets = int((inputs["y"] != NO_TARGET).sum())
    return Counts(len(inputs["y"]), targets, targets)


def mean_square(model: nn.Module, inputs: Inputs, number: Any = None) -> torch.Tensor:
    target = inputs["y"] != NO_TARGET
    loss: torch.Tensor = (model(inputs["x"]).squeeze(-1)[target] - inputs["y"][target]).square().mean()
    return loss


def row(number: int) -> tuple[list[float], float]:
    return [1.0 + number % 3, number * 0.5 - 1], float(number % 4)


def batch(*numbers: int, bad: int | None = None, without: tuple[int, ...] = ()) -> MicroBatch:
    """Rows by number; one may hold a NaN, others no target."""
    x = torch.tensor([row(number)[0] for number in numbers])
    y = torch.tensor([NO_TARGET if number in without else row(number)[1] for number in numbers])
    if bad is not None:
        x[numbers.index(bad), 0] = float("nan")
    inputs = {"x": x, "y": y}
    return MicroBatch(inputs, numbers, counts_of(inputs), len(numbers), len(numbers))


def step(*batches: MicroBatch, epoch: int = 0, index: int = 0) -> Step:
    return Step(epoch, index, batches, sum(len(part.rows) for part in batches))


class Recorder:
    """Events by name, in order; something may be done at one of them."""

    def __init__(self) -> None:
        self.fired: list[str] = []
        self.at: dict[str, Any] = {}

    def fire(self, event: str, **details: Any) -> None:
        self.fired.append(event)
        if event in self.at:
            self.at[event]()


def linear(dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.Dropout(dropout), nn.Linear(8, 1))


def runner(
    model: nn.Module, policy: str = "stop", optimizer: torch.optim.Optimizer | None = None, clip: float = 0.0
) -> StepRunner:
    """Takes steps of plain gradient descent, or of another optimizer."""
    device = torch.device("cpu")
    engine, objective = SingleEngine(device, Precision(), clip), LossOf(mean_square, "labels")
    engine.attach(model, optimizer or torch.optim.SGD(model.parameters(), lr=0.05))

    def backward(part: MicroBatch, num_targets: int) -> torch.Tensor:
        loss = objective.step_loss(model, part, num_targets)
        engine.backward(loss)
        return loss.detach()

    watch = NonFiniteWatch(policy, device, lambda bad: nonfinite_rows(model, objective, engine, bad, counts_of))
    return StepRunner(model, objective, engine, Recorder(), watch, backward, seed=0)


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


# ---------------------------------------------------------------- a whole loop


class Steps:
    """Steps of two rows each, `per_pass` of them a pass. `known` says whether the length is."""

    def __init__(self, per_pass: int, known: bool = True, passes: int | None = None) -> None:
        self.per_pass, self.known, self.passes = per_pass, known, passes
        self.asked: list[tuple[int, int]] = []
        self.replaced: dict[tuple[int, int], Step] = {}

    @property
    def steps_per_epoch(self) -> int | None:
        return self.per_pass if self.known else None

    def steps(self, epoch: int, first: int) -> Iterator[Step]:
        self.asked.append((epoch, first))
        if self.passes is not None and epoch >= self.passes:
            return
        for index in range(first, self.per_pass):
            plain = step(batch(2 * index, 2 * index + 1), epoch=epoch, index=index)
            yield self.replaced.get((epoch, index), plain)


class EverySoOften:
    """Logs, evaluates and saves every so many steps; 0 for never."""

    def __init__(self, log: int = 0, evaluate: int = 0, save: int = 0) -> None:
        self.log, self.evaluate, self.save = log, evaluate, save

    def mark_step(self, control: TrainerControl, state: TrainerState) -> None:
        now = state.global_step
        control.should_log |= bool(self.log) and now % self.log == 0
        control.should_evaluate |= bool(self.evaluate) and now % self.evaluate == 0
        control.should_save |= bool(self.save) and now % self.save == 0
        control.should_training_stop |= now >= state.max_steps

    def mark_epoch(self, control: TrainerControl, state: TrainerState) -> None:
        pass


class Notes:
    """What the loop had done for it, with the step."""

    def __init__(self, state: TrainerState, best: tuple[int, ...] = ()) -> None:
        self.state, self.best = state, best
        self.logs: list[dict[str, float]] = []
        self.done: list[tuple[str, int]] = []
        self.saved: list[TrainerState] = []
        self.rate = 1.0

    def log(self, logs: dict[str, float]) -> None:
        self.done.append(("log", self.state.global_step))
        self.logs.append({**logs, "step": self.state.global_step})

    def evaluate(self) -> bool:
        self.done.append(("evaluate", self.state.global_step))
        return self.state.global_step in self.best

    def save(self) -> None:
        self.done.append(("save", self.state.global_step))
        self.saved.append(TrainerState(**vars(self.state)))

    def let_saves_end(self) -> None:
        pass

    def look_at_saves(self) -> None:
        pass

    def try_saving(self) -> None:
        pass

    def finish_saves(self) -> None:
        pass

    def refuse_unsaved(self) -> None:
        pass

    def learning_rate(self) -> float:
        return self.rate

    def advance_schedule(self) -> None:
        self.rate /= 2


class NoStop:
    requested: int | None = None

    def raise_for(self, number: int) -> NoReturn:
        raise SystemExit(128 + number)


def loop(
    max_steps: int,
    source: Steps | None = None,
    rhythm: EverySoOften | None = None,
    state: TrainerState | None = None,
    model: nn.Module | None = None,
    policy: str = "stop",
    best: tuple[int, ...] = (),
) -> Any:
    """A loop over `source`, its actions taken down in `loop.actions`."""
    state = state or TrainerState()
    state.max_steps = max_steps
    takes_steps, stop = runner(model or linear(), policy), NoStop()
    return TrainingLoop(
        source=source or Steps(4),
        runner=takes_steps,
        window=LossWindow(torch.device("cpu"), state),
        state=state,
        control=TrainerControl(),
        rhythm=rhythm or EverySoOften(),
        events=takes_steps.events,
        actions=Notes(state, best),
        stop=stop,
        agreement=Agreement(takes_steps.work_of, lambda taken: 0.0, stop),
    )
