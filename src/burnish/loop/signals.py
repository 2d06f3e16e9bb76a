"""Ctrl-C and the signals of batch systems: the step is finished and saved before the run ends."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import NoReturn

from burnish.core.processes import launch

_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGUSR1")
    if hasattr(signal, name)  # Windows lacks some
)


class StopRequests:
    """While it is open, SIGINT, SIGTERM and SIGUSR1 ask for an end instead of making one.

    The loop looks at `requested` after each step, saves, and calls `raise_for`. A second SIGINT raises
    ``KeyboardInterrupt`` at once. Only signals that would have ended the process are taken over; a handler that the
    user installed, or a signal that is ignored, stays as it is. Outside the main thread nothing is taken over, since
    Python hands signals to the main thread only.
    """

    def __init__(self) -> None:
        self.requested: int | None = None
        """Number of the first signal that came; None while there was none."""
        self._interrupts = 0
        self._previous: dict[int, object] = {}
        self._process = os.getpid()
        self._is_first = True

    def __enter__(self) -> StopRequests:
        self._process, self._is_first = os.getpid(), launch().index == 0
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                previous = signal.getsignal(number)
                if previous in (signal.SIG_DFL, signal.default_int_handler):
                    self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)  # type: ignore[arg-type]
        self._previous.clear()

    def raise_for(self, number: int) -> NoReturn:
        """Ends the run as a signal asked that came to this process or another one of the run.

        Raises:
            KeyboardInterrupt: for SIGINT.
            SystemExit: for the others, with the code a shell gives them: 128 + number (143 for SIGTERM).
        """
        self.requested = number
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            _in_child(number)
            return
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                raise KeyboardInterrupt
        is_news = self.requested is None or number == signal.SIGINT
        if self.requested is None:
            self.requested = number
        if is_news and self._is_first:  # a batch system sends it to all processes, and a launcher hands it on again
            _tell(number)


def signal_of(end: SystemExit) -> signal.Signals | None:
    """The signal that an end is from (see `StopRequests.raise_for`); None for another end."""
    known = {128 + int(number): number for number in signal.Signals}
    return known.get(end.code) if isinstance(end.code, int) else None


def _in_child(number: int) -> None:
    """A forked worker inherits the handler. It can be terminated; whether the run ends is for its parent to say."""
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _tell(number: int) -> None:
    again = " Ctrl-C again leaves at once." if number == signal.SIGINT else ""
    text = f"\n{signal.Signals(number).name}: the step is finished and saved, then the run ends.{again}\n"
    os.write(2, text.encode())  # not print or logging: the signal may have come in the middle of either
