"""The live display of a terminal: a bar for training, a bar for evaluation, lines above them."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .lines import duration

SECONDS_BETWEEN_FRAMES = 0.1
BAR_WIDTH = 36


@dataclass
class Bar:
    """What one bar shows."""

    name: str
    total: int | None = None
    done: int = 0
    remaining: float | None = None
    """Seconds."""
    begun: float = field(default_factory=time.perf_counter)

    def cells(self) -> list[RenderableType]:
        share = f"{self.done / self.total:>4.0%}" if self.total else ""
        count = f"{self.done}/{self.total}" if self.total else f"{self.done}"
        left = f"ETA {duration(self.remaining)}" if self.remaining else ""
        bar = ProgressBar(total=self.total, completed=self.done, width=BAR_WIDTH, pulse=not self.total)
        elapsed = duration(time.perf_counter() - self.begun)
        return [
            Text(self.name, style="bold"),
            bar,
            Text(share, style="cyan"),
            Text(count, style="green"),
            Text(elapsed, style="yellow"),
            Text(left, style="cyan"),
        ]


class LiveDisplay:
    """Draws on stderr whenever it is told something new.

    Has no thread of its own: a lock that such a thread holds at the moment of a fork would stay locked in the workers
    of a dataloader.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._train: Bar | None = None
        self._eval: Bar | None = None
        self._stats = ""
        self._next_frame = 0.0
        self._live = Live(
            console=console or Console(stderr=True),
            get_renderable=self._frame,
            auto_refresh=False,
            transient=False,
            # What is printed meanwhile appears above the bars, unless it goes to a file.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=True,
        )
        self._live.start()

    def training(self, done: int, total: int, remaining: float | None = None, stats: str = "") -> None:
        """Steps done of `total`, seconds left, and a line of numbers below the bar."""
        if self._train is None:
            self._train = Bar("training")
        self._train.done, self._train.total, self._train.remaining = done, total or None, remaining
        self._stats = stats
        self._live.refresh()

    def evaluation(self, total: int | None) -> None:
        """One more batch of an evaluation of `total` batches is done."""
        if self._eval is None:
            self._eval = Bar("evaluating", total)
            self._next_frame = 0.0
        self._eval.done += 1
        now = time.perf_counter()
        if now >= self._next_frame:
            self._next_frame = now + SECONDS_BETWEEN_FRAMES
            self._live.refresh()

    @property
    def evaluates(self) -> bool:
        """Whether the bar of an evaluation is shown."""
        return self._eval is not None

    def evaluation_ended(self) -> None:
        """Takes the bar of the evaluation away."""
        self._eval = None
        self._live.refresh()

    def line(self, text: str, strong: bool = False) -> None:
        """Prints a line above the bars; numbers that are none stand out."""
        styled = Text(text, style="bold" if strong else "")
        styled.highlight_regex(r"\b-?(nan|inf)\b", "bold red")
        self._live.console.print(styled, soft_wrap=True)

    def stop(self) -> None:
        """Leaves the bar of training on the screen and gives the terminal back."""
        self._live.transient = self._train is None
        self._live.stop()

    def _frame(self) -> RenderableType:
        bars = [bar for bar in (self._train, self._eval) if bar is not None]
        if not bars:
            return Text("")
        table = Table.grid(padding=(0, 1))
        for bar in bars:
            table.add_row(*bar.cells())
        return Group(table, Text(f"  {self._stats}", style="dim")) if self._stats else table
