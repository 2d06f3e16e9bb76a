"""The clock of a run: what has taken how long, and what is due by it."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator

MARGIN = 1.25
"""The end is taken to last this much longer than the longest evaluation and save so far."""
UNKNOWN = 0.1
"""Share of the limit that is kept for an evaluation of which nothing is known yet."""
RECENT = 50
"""Steps of which the longest is what the next one is taken to last."""
SHORTEST = 1e-6
"""Seconds that a step takes at least."""
SETTLED = 3
"""Steps of a start after which its pace is known."""


def now() -> float:
    """Seconds of a clock that only goes forward."""
    return time.monotonic()


class RunClock:
    """Says when the time of a run is up, soon enough for the last evaluation and the last save to end within it.

    What these two and a step take is measured in the run. Until one of them has been done, it is guessed: an evaluation
    takes as long as the usual training steps of as many examples, and a save `save_guess`. The first step of a start,
    which compiles and warms up, says nothing of the others.

    Args:
        limit: seconds that the run may take; None for no limit.
        used: seconds of them that are used already, where it is the time of the whole run.
        of_whole_run: whether it is, and not that of this start.
        save_every: seconds between two checkpoints, or None.
        save_guess: seconds that a save may take.
        eval_steps: training steps that have as many examples as an evaluation; 0 where there is none at the end, None
            where that is not known.
        begun: when the time began to count, by `now`; now where it is not given.
        sum_over_processes, num_processes: make one answer of those that the processes of a run have, so that all do
            the same.
    """

    def __init__(
        self,
        limit: float | None = None,
        used: float = 0.0,
        of_whole_run: bool = False,
        save_every: float | None = None,
        save_guess: float = 0.0,
        eval_steps: float | None = 0.0,
        begun: float | None = None,
        sum_over_processes: Callable[[int], int] = int,
        num_processes: int = 1,
    ) -> None:
        self.limit, self.used, self.of_whole_run, self.save_every = limit, used, of_whole_run, save_every
        self.save_guess, self.eval_steps = save_guess, eval_steps
        self._sum, self._num_processes = sum_over_processes, num_processes
        self._last_save = self._step_begun = now()
        self._begun = self._step_begun if begun is None else begun
        self._elsewhere = 0.0
        self._steps: deque[float] = deque(maxlen=RECENT)
        self._num_steps = 0
        self._first_step_ended = 0.0
        self._evaluation: float | None = None
        self._save: float | None = None
        self._writing_since: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds of the run so far, with those that were used before."""
        return self.used + now() - self._begun

    # ---------------------------------------------------------------- what happens

    def step_ended(self) -> None:
        """A step is done. What was evaluated and saved since the step before does not count as its time."""
        ended = now()
        self._num_steps += 1
        if self._num_steps == 1:
            self._first_step_ended = ended
        self._steps.append(ended - self._step_begun - self._elsewhere)
        self._step_begun, self._elsewhere = ended, 0.0

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        begun = now()
        with self.away():
            yield
        self._evaluation = max(self._evaluation or 0.0, now() - begun)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """What is done inside is no part of a step."""
        begun = now()
        try:
            yield
        finally:
            self._elsewhere += now() - begun

    def save_begins(self) -> None:
        self._writing_since = self._last_save = now()

    def save_ended(self) -> None:
        """A checkpoint is on the disk, or could not be written."""
        if self._writing_since is not None:
            self._save = max(self._save or 0.0, now() - self._writing_since)
        self._writing_since = None

    # ---------------------------------------------------------------- what is due

    def save_is_due(self) -> bool:
        """Whether so much time has passed since the last save began."""
        return self.save_every is not None and self._any(now() - self._last_save >= self.save_every)

    def time_is_up(self, evaluates: bool = False, saves: bool = False) -> bool:
        """Whether another step would leave too little time for the end.

        Args:
            evaluates, saves: whether that is due before the next step in any case.
        """
        if self.limit is None:
            return False
        before = (self._evaluation_takes() if evaluates else 0.0) + (self._save_takes() if saves else 0.0)
        return self._any(self.seconds + before + self._step_takes() + self.reserve >= self.limit)

    @property
    def reserve(self) -> float:
        """Seconds that are kept for the end: the last evaluation, a checkpoint that is being written, the last one."""
        save = self._save_takes()
        being_written = 0.0 if self._writing_since is None else max(0.0, save - (now() - self._writing_since))
        return MARGIN * (self._evaluation_takes() + save + being_written)

    def steps_left(self) -> int | None:
        """Steps that the time still has room for at the pace of this start, evaluations and saves in it; None while the
        pace is not known."""
        if self.limit is None or self._num_steps < SETTLED:
            return None
        pace = (now() - self._first_step_ended) / (self._num_steps - 1)
        left = max(0.0, self.limit - self.seconds - self.reserve)
        return self._sum(int(left / max(pace, SHORTEST))) // self._num_processes

    def _any(self, answer: bool) -> bool:
        return self._sum(int(answer)) > 0

    def _later_steps(self) -> list[float]:
        return list(self._steps)[1 if self._num_steps <= RECENT else 0 :]

    def _step_takes(self) -> float:
        """As long as the longest of late; as the first one while there is no other."""
        return max(self._later_steps() or self._steps, default=0.0)

    def _save_takes(self) -> float:
        return self.save_guess if self._save is None else self._save

    def _evaluation_takes(self) -> float:
        if self.eval_steps == 0:
            return 0.0
        if self._evaluation is not None:
            return self._evaluation
        steps = self._later_steps()
        if self.eval_steps is None or not steps:
            return UNKNOWN * (self.limit or 0.0)
        return self.eval_steps * statistics.median(steps)
