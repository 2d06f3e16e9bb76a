"""Progress to watch: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import atexit
import os
import sys
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from burnish.core.events import TrainerCallback
from burnish.core.progress import TrainerState

from .lines import GAP, metrics_line, pace_numbers, place, training_numbers
from .memory import memory_in_use
from .pace import Mark, Pace, rates_between
from .peak import peak_flops
from .text_samples import how_many, text_lines
from .values import Announced, split_of

if TYPE_CHECKING:
    from .live import LiveDisplay

SECONDS_BETWEEN_FRAMES = 0.25
FRAMES_FOR_RATES = 40
"""The live rates are those of the last 40 frames: 10 s or more of training."""


class ConsoleCallback(TrainerCallback):
    """Shows how a run goes, on the first process of a machine.

    On a terminal: a live display on stderr with a bar for training and one for evaluation, and a line above it for
    each log. Elsewhere, and with ``disable_tqdm=True``: one line for each log on stdout. Rates are of training alone,
    without the time of evaluations and saving; the time left counts these too. Never waits for the device.
    """

    def __init__(self) -> None:
        self._pace: Pace | None = None
        self._peak: float | None = None
        self._last_line: Mark | None = None
        self._frames: deque[Mark] = deque(maxlen=FRAMES_FOR_RATES)
        self._next_frame = 0.0
        self._numbers = ""
        self._announced = Announced()
        self._display: LiveDisplay | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        if live_wanted(args):
            self._open().training(state.global_step, state.max_steps)
        self._peak = peak_flops(kwargs["model"], args) if kwargs.get("model") is not None else None
        self._pace = Pace(state)
        self._last_line = self._pace.begin
        self._frames.clear()
        self._frames.append(self._pace.begin)
        self._numbers, self._next_frame = "", 0.0

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if self._pace is None:
            return
        now = self._pace.step_ended()
        if self._display is not None and now >= self._next_frame:
            self._next_frame = now + SECONDS_BETWEEN_FRAMES
            self._show(state)

    def on_prediction_step(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        if self._pace is not None:
            self._pace.interruption_ended()
            if self._display is not None and not self._display.evaluates:
                self._show(state)  # the bar of training stands still from now on: at the right step
        if self._display is not None or live_wanted(args):
            self._open().evaluation(_length(kwargs.get("eval_dataloader")))

    def on_log(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        logs = kwargs["logs"]
        self._announced.logged(state.global_step, logs)
        split = split_of(logs)
        if split is not None:
            self._write(metrics_line(split, logs, state), strong=True)
            return
        numbers = training_numbers(logs)
        if "loss" in logs:
            self._numbers = numbers
        if self._display is not None and self._pace is not None:
            self._show(state)
        self._write(GAP.join(part for part in (place(state), numbers, self._pace_since_last_line(state)) if part))

    def on_generate_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self._write(how_many(kwargs["num_texts"], kwargs["num_rows"]))

    def on_generate(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            for line in text_lines(kwargs["texts"], kwargs["path"]):
                self._write(line)

    def on_evaluate(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self._pass_ended(state, kwargs["metrics"])

    def on_predict(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self._pass_ended(state, kwargs["metrics"])

    def on_save(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if self._pace is not None:
            self._pace.interruption_ended()

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if self._display is not None and self._pace is not None:
            self._show(state)
        self.close()
        self._pace = None

    def on_exception(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """The run ends by an error: the terminal is given back as it was."""
        self.close()
        self._pace = None

    def close(self) -> None:
        """Ends the live display, if there is one."""
        if self._display is not None:
            self._display.stop()
            self._display = None
            atexit.unregister(self.close)

    def _open(self) -> LiveDisplay:
        if self._display is None:
            from .live import LiveDisplay

            self._display = LiveDisplay()
            atexit.register(self.close)  # a display that is left running hides the cursor of the terminal
        return self._display

    def _show(self, state: TrainerState) -> None:
        assert self._pace is not None and self._display is not None
        now = self._pace.mark(state)
        self._frames.append(now)
        pace = pace_numbers(rates_between(self._frames[0], now), memory_in_use())
        parts = (f"epoch {state.epoch:.2f}", self._numbers, pace)
        remaining = self._pace.remaining(state)
        self._display.training(state.global_step, state.max_steps, remaining, GAP.join(part for part in parts if part))

    def _pace_since_last_line(self, state: TrainerState) -> str:
        if self._pace is None or self._last_line is None:
            return ""
        now = self._pace.mark(state)
        rates = rates_between(self._last_line, now)
        self._last_line = now
        if self._display is not None:  # the bar below says the rest
            return pace_numbers(rates._replace(padding_avoided=None), None, peak=self._peak)
        return pace_numbers(rates, memory_in_use(), self._pace.remaining(state), self._peak)

    def _pass_ended(self, state: TrainerState, metrics: Mapping[str, Any] | None) -> None:
        if not state.is_world_process_zero:
            return
        if self._pace is not None:
            self._pace.interruption_ended()
        if metrics and self._announced.is_news(state.global_step, metrics):
            self._write(metrics_line(split_of(metrics) or "eval", metrics, state), strong=True)
        if self._display is not None:
            self._display.evaluation_ended()
            if self._pace is None:
                self.close()

    def _write(self, line: str, strong: bool = False) -> None:
        if self._display is not None and sys.stdout.isatty():
            self._display.line(line, strong)
        else:
            print(line, flush=True)


def live_wanted(args: Any) -> bool:
    """Whether bars can and may be drawn: stderr is a terminal that can move its cursor."""
    return not args.disable_tqdm and sys.stderr.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def _length(dataloader: Any) -> int | None:
    try:
        return len(dataloader)
    except TypeError:
        return None  # an iterable dataset, or no dataloader at all
