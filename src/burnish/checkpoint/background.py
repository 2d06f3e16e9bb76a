"""One write behind the training."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable

_NICENESS = 5
"""What is added for the thread that writes: a quarter of the time of a processor that the training wants, too. More
would hold up the next checkpoint, which waits for this one, on a machine that others use as well."""

_at_work: set[threading.Event] = set()
"""Of each work of this process that has not ended. Each is set at the end: a `Thread.join` that an interrupt breaks off
takes a thread for ended that is not (Python 3.10 to 3.12)."""


class BackgroundWriter:
    """Does one piece of work at a time in a thread of its own, and says later how it went.

    The thread does not keep the process alive: one that ends meanwhile leaves what a process leaves that is killed.
    """

    def __init__(self) -> None:
        self._ended: threading.Event | None = None
        self._error: Exception | None = None

    def start(self, work: Callable[[], object]) -> None:
        """Begins. The work before must have been taken."""
        assert self._ended is None, "one at a time"
        self._ended = threading.Event()
        _at_work.add(self._ended)
        threading.Thread(target=self._do, args=(work, self._ended), name="checkpoint", daemon=True).start()

    @property
    def at_work(self) -> bool:
        return self._ended is not None and not self._ended.is_set()

    def take(self) -> Exception | None:
        """Waits for the end of the work, and returns the error that it ended with; None where it went well."""
        if self._ended is not None:
            self._ended.wait()
        error, self._ended, self._error = self._error, None, None
        return error

    def _do(self, work: Callable[[], object], ended: threading.Event) -> None:
        try:
            give_way()
            work()
        except Exception as error:
            self._error = error
        finally:
            _at_work.discard(ended)
            ended.set()


def give_way() -> None:
    """Lets this thread run on what the training leaves of the processors, where threads have priorities of their own.

    A thread of the training that waits for its processor makes all the others of a matrix product wait for it.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)


def wait_for_all() -> None:
    """Waits for every write of this process, also of a run that was left by an interrupt."""
    for ended in list(_at_work):
        ended.wait()
