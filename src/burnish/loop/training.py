"""The training loop, in the order in which things happen."""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from burnish.core.errors import DataError
from burnish.core.progress import TrainerControl, TrainerState
from burnish.core.protocols import Actions, Events, Rhythm, StepSource, StopRequest
from burnish.core.types import Step, StepReport

from .agreement import Agreement, Totals
from .step import StepRunner
from .window import LossWindow

logger = logging.getLogger(__name__)


@dataclass
class TrainingLoop:
    """Takes steps until the last one, or until somebody asks to stop."""

    source: StepSource
    runner: StepRunner
    window: LossWindow
    state: TrainerState
    control: TrainerControl
    rhythm: Rhythm
    events: Events
    actions: Actions
    stop: StopRequest
    agreement: Agreement
    seconds: float = field(default=0.0, init=False)
    """Time spent on training so far, without evaluations and saving."""
    _last_logged: int = field(default=-1, init=False)
    _rate: float = field(default=0.0, init=False)
    _between_steps: bool = field(default=True, init=False)
    _steps_without_target: int = field(default=0, init=False)
    _learnt: bool = field(default=False, init=False)

    def run(self) -> None:
        """Trains from where `state` stands to `state.max_steps`."""
        self._last_logged = self.state.global_step
        self.actions.try_saving()
        self.seconds -= time.perf_counter()
        try:
            self.agreement.begin(self.control)
            while self.state.global_step < self.state.max_steps and not self.control.should_training_stop:
                self._pass()
            if self.state.unlogged_steps or self.state.global_step > self._last_logged:
                self._log()
            self.runner.watch.look()
            self._finish_saves()
        except KeyboardInterrupt:
            is_first = self._between_steps and self.stop.requested is None  # the second, or all is saved, otherwise
            if is_first and self.agreement.processes.count == 1:  # of several processes, only this one knows of it
                self._save()
                self._finish_saves()
            raise
        except BaseException:
            with self._not_training():
                self.actions.let_saves_end()
            raise
        finally:
            self.seconds += time.perf_counter()

    def _pass(self) -> None:
        """One pass over the data, or what is left of it."""
        first = self.state.steps_in_pass
        self.control.should_epoch_stop = False
        self.events.fire("on_epoch_begin")
        complete = True
        for step, totals in self._steps(first):
            self._step(step, totals)
            if self.control.should_training_stop or self.control.should_epoch_stop:
                complete = self.control.should_epoch_stop or self.state.steps_in_pass == self.source.steps_per_epoch
                break
        if self.state.steps_in_pass == 0:
            raise DataError(
                f"train_dataset gave no rows in pass {self.state.passes + 1}; {self.state.global_step} of "
                f"{self.state.max_steps} steps are done. A stream that can be read only once needs a smaller max_steps."
            )
        if first == 0 and not self._learnt and (complete or self.state.global_step >= self.state.max_steps):
            raise DataError(
                f"No row of train_dataset has a target: every label of all {self._steps_without_target} steps so far "
                "is -100, so nothing was learnt. Look at how the labels are made (a mask or a cut that leaves none)."
            )
        if complete:  # otherwise a resumed run goes on within this pass
            self.state.passes, self.state.steps_in_pass = self.state.passes + 1, 0
        self.rhythm.mark_epoch(self.control, self.state)
        self.events.fire("on_epoch_end")
        self.agreement.on_control(self.control)
        self._act()

    def _steps(self, first: int) -> Iterator[tuple[Step, Totals]]:
        """The steps of a pass with what they hold over all processes. A process whose data have come to an end takes
        part in those of the others with none of its own."""
        steps = iter(self.source.steps(self.state.passes, first))
        while True:
            self._at("reading the rows of", self.state.global_step + 1, in_step=True)
            step = next(steps, None)
            totals = self.agreement.on(step)
            if self.agreement.is_bad:
                self.runner.watch.look()
            if totals is None:
                return
            none = Step(self.state.passes, self.state.steps_in_pass, (), stream_state=self.state.stream_state)
            yield step or none, totals

    def _step(self, step: Step, totals: Totals) -> None:
        self.control.new_step()
        self.events.fire("on_step_begin")
        self._between_steps = False
        self._rate = self.actions.learning_rate()
        self._at("computing", self.state.global_step + 1, in_step=self._learnt)  # the first step may compile
        report = self.runner.take(step, totals)
        self.actions.advance_schedule()
        self._advance(totals)
        self.state.stream_state = step.stream_state
        self._take_down(step, report)
        self._between_steps = True
        self.rhythm.mark_step(self.control, self.state)
        self.events.fire("on_step_end")
        self.actions.look_at_saves()
        self.agreement.on_control(self.control)
        asked_by = self.agreement.asked_by  # one that comes later waits for the next step, to be saved too
        if asked_by is not None:
            self.control.should_save = True
            if self.state.global_step < self.state.max_steps:
                self.state.stop_reason = signal.Signals(asked_by).name
        self._act()
        if asked_by is not None:
            self._finish_saves()
            self.stop.raise_for(asked_by)

    def _advance(self, totals: Totals) -> None:
        state = self.state
        state.global_step += 1
        state.steps_in_pass += 1
        state.epoch = state.passes + state.steps_in_pass / (self.source.steps_per_epoch or state.max_steps)
        state.num_examples_seen += totals.examples
        state.num_input_tokens_seen += totals.tokens
        state.num_positions += totals.positions
        state.num_positions_plain += totals.positions_plain
        state.total_flos += totals.flops

    def _take_down(self, step: Step, report: StepReport | None) -> None:
        if report is not None:
            self._learnt = True
            self.window.add(report)
            self.runner.watch.note(self.state.global_step, step, report)
            return
        self._steps_without_target += 1
        if self._steps_without_target == 1:
            others = " (and those of the other processes)" if self.agreement.processes.count > 1 else ""
            logger.warning(
                "Step %d has no target: every label of rows %s%s is -100. It counts in no loss and changes no weight; "
                "further steps of this kind are not reported one by one.",
                *(self.state.global_step, sorted(step.rows), others),
            )

    def _act(self) -> None:
        """Does what is asked for: log, evaluate, save, in this order. Callbacks hear of each, and may ask for more."""
        control = self.control
        if control.should_log:
            if self.state.global_step > self._last_logged:
                self._log()
            control.should_log = False
            self.agreement.on_control(control)
        if control.should_evaluate:
            control.should_evaluate = False
            self.runner.watch.look()
            self._at("evaluating after", self.state.global_step)
            with self._not_training():
                control.should_save = self.actions.evaluate() or control.should_save
            self.agreement.on_control(control)
        if control.should_save:
            control.should_save = False
            self._save()
            self.agreement.on_control(control)

    def _log(self) -> None:
        self.runner.watch.look()
        logs = self.window.close(self.state)
        self._last_logged = self.state.global_step
        self.actions.log({**logs, "learning_rate": self._rate})

    def _save(self) -> None:
        self.runner.watch.look()
        self.window.into(self.state)
        self._at("saving after", self.state.global_step)
        with self._not_training():
            self.actions.save()

    def _finish_saves(self) -> None:
        self._at("writing the last checkpoint after", self.state.global_step)
        with self._not_training():
            self.actions.finish_saves()

    def _at(self, doing: str, step: int, in_step: bool = False) -> None:
        """Where this process is, for the others."""
        if self.agreement.processes.count > 1:
            self.agreement.processes.at(f"{doing} step {step}", in_step)

    @contextlib.contextmanager
    def _not_training(self) -> Iterator[None]:
        """What is done inside does not count as training; the device has done its steps before."""
        self.seconds += time.perf_counter()
        try:
            yield
        finally:
            self.seconds -= time.perf_counter()
