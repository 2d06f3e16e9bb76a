"""Uploads behind the training: one at a time."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.core.protocols import StopRequest

from . import in_use
from .background import give_way

logger = logging.getLogger(__name__)

PAUSE = 0.1
"""Seconds between two looks whether a stop is asked for."""


@dataclass(eq=False)
class Job:
    """An upload that waits, or is under way."""

    name: str
    """What is uploaded, for people."""
    work: Callable[[], Any]
    must: bool = False
    """Whether it has its turn, whatever comes after it."""
    outcome: Future[Any] = field(default_factory=Future)
    held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Keeps the checkpoint that it reads from being deleted."""

    def do(self) -> None:
        with self.held:
            self.outcome.set_running_or_notify_cancel()
            try:
                self.outcome.set_result(self.work())
            except Exception as error:
                self.outcome.set_exception(error)


class UploadQueue:
    """Does uploads in a thread of its own, which does not keep the process alive: a process that ends meanwhile leaves
    a repository without the commit that was on its way.
    """

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._now: Job | None = None
        self._changed = threading.Condition()

    def add(self, name: str, work: Callable[[], Any], reads: Path | None = None, must: bool = False) -> Future[Any]:
        """Takes an upload in, and returns what becomes of it.

        Args:
            reads: a checkpoint that must stay until it is uploaded.
            must: whether it has its turn, and leaves theirs to all others. Otherwise it takes the place of those that
                wait without having to be done.

        Raises:
            CheckpointError: that checkpoint is being deleted.
        """
        job = Job(name, work, must)
        if reads is not None:
            job.held.enter_context(in_use.held(reads))
        with self._changed:
            for one in [] if must else [one for one in self._waiting if not one.must]:
                logger.info("%s is not uploaded: the upload before it goes on, and %s is newer.", one.name, name)
                self._drop(one)
            self._waiting.append(job)
            if self._now is None:
                self._now = self._waiting.popleft()
                threading.Thread(target=self._work, name="upload", daemon=True).start()
        return job.outcome

    @property
    def names(self) -> list[str]:
        """What is being uploaded, and what waits."""
        with self._changed:
            return [job.name for job in (self._now, *self._waiting) if job is not None]

    def wait(self, stop: StopRequest | None = None, seconds: float = math.inf) -> bool:
        """Until all uploads have ended, a stop is asked for, or so much time is over; whether they have ended."""
        until = time.monotonic() + seconds
        with self._changed:
            while not self._changed.wait_for(lambda: self._now is None, PAUSE):
                if (stop is not None and stop.requested is not None) or time.monotonic() > until:
                    return False
        return True

    def leave(self) -> list[str]:
        """Gives up those that wait; the one that is under way goes on while the process lives. Returns their names."""
        left = self.names
        with self._changed:
            for job in list(self._waiting):
                self._drop(job)
        return left

    def _drop(self, job: Job) -> None:
        self._waiting.remove(job)
        job.outcome.cancel()
        job.held.close()

    def _work(self) -> None:
        give_way()
        while self._now is not None:
            self._now.do()
            with self._changed:
                self._now = self._waiting.popleft() if self._waiting else None
                self._changed.notify_all()
