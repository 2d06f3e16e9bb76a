"""Where each process of a run is, for the message that ends a run in which one of them hangs."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import platform
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import FrameType
from typing import Any

import torch.distributed as dist

logger = logging.getLogger(__name__)

CONNECTING = timedelta(seconds=20)
ASKING = 3.0
"""Seconds that an answer about the others may take: the process that keeps it may be the one that hangs."""
MOST_SHOWN = 16
"""Processes that a message describes."""
ABORTED = 1
"""Exit code of a process that was stuck in a step."""


class Watch:
    """Tells the others where this process is, from a thread beside it, and asks where they are.

    All of it goes through a key-value store of its own that process 0 keeps. A place is a text, such as "step 12:
    reading its rows"; how long it has not changed, and the line of Python where that is, are told with it.

    Args:
        index, count: this process, and how many there are.
        store: where each process writes under its number.
        limit: seconds that a process may be at one place of a step while others wait for it.
    """

    def __init__(self, index: int, count: int, store: Any, limit: float) -> None:
        self.index, self.count, self.store, self.limit = index, count, store, limit
        self.interval = min(5.0, limit / 10)
        self._at = ("starting", False, time.monotonic())
        self._rounds, self._waits = 0, False
        self._main = threading.get_ident()
        self._beats = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="burnish-watch", daemon=True)
        self._thread.start()
        atexit.register(self.end)  # a thread that is in the store when Python ends takes the process down with it

    def end(self) -> None:
        """Tells nothing any more."""
        self._over.set()
        self._thread.join(ASKING)

    def at(self, place: str, in_step: bool) -> None:
        """From now on this process is at `place`: in a step, which the others wait for, or at work that may be long."""
        self._at = (place, in_step, time.monotonic())

    def waits(self, rounds: int, yes: bool) -> None:
        """Whether this process waits for the others, and how many exchanges it has begun."""
        self._rounds, self._waits = rounds, yes

    def others(self) -> list[Mapping[str, Any] | None]:
        """What each process has told last; None for one that has told nothing since this was asked."""
        found: list[list[Any]] = []

        def ask() -> None:
            with contextlib.suppress(Exception):  # the store goes with process 0
                before = self._told()
                time.sleep(2.5 * self.interval)
                pairs = zip(before, self._told(), strict=True)
                found.append([now if now and now != then else None for then, now in pairs])

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(ASKING + 2.5 * self.interval)
        others: list[Mapping[str, Any] | None] = list(found[0]) if found else [None] * self.count
        others[self.index] = self._here()
        return others

    def _told(self) -> list[Mapping[str, Any] | None]:
        keys = [str(index) for index in range(self.count)]
        return [json.loads(self.store.get(key)) if self.store.check([key]) else None for key in keys]

    def _here(self) -> dict[str, Any]:
        place, in_step, since = self._at
        return {
            "place": place,
            "in_step": in_step,
            "seconds": time.monotonic() - since,
            "line": _line(sys._current_frames().get(self._main)),
            "rounds": self._rounds,
            "waits": self._waits,
            "process": f"{platform.node()}, pid {os.getpid()}",
            "beat": self._beats,
        }

    def _run(self) -> None:
        while not self._over.is_set():
            self._beats += 1
            try:
                self.store.set(str(self.index), json.dumps(self._here()))
            except Exception:  # process 0 is gone, and with it the run
                return
            self._end_if_stuck()
            self._over.wait(self.interval)

    def _end_if_stuck(self) -> None:
        """Ends this process where it waits inside a step for gradients of others, which no exception can reach. One
        that waits in an exchange gets an exception there, and sooner."""
        _, in_step, since = self._at
        if not in_step or self._waits or time.monotonic() - since < self.limit + 4 * self.interval:
            return
        others = self.others()
        if any(one is not None and one["rounds"] > self._rounds for one in others):
            return  # they wait for this process, and say so
        if self._at[2] == since and not self._waits:
            text = "The run hangs: a step has not come to its end.\n" + described(others)
            os.write(2, f"\nburnish: {text}\n".encode())
            os._exit(ABORTED)


def store_for(index: int, from_first: Callable[[Callable[[], Any]], Any]) -> Any:
    """A key-value store that process 0 keeps; None where it cannot be reached."""
    kept: list[Any] = []

    def keep() -> tuple[str, int]:
        host = os.environ.get("MASTER_ADDR") or socket.gethostname()
        kept.append(dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=CONNECTING))
        return host, kept[0].port

    host, port = from_first(keep)
    if index == 0:
        return kept[0]
    try:
        return dist.TCPStore(host, port, is_master=False, timeout=CONNECTING)
    except RuntimeError as error:
        logger.debug("Where the other processes are will not be known: %s", error)
        return None


def are_in_steps(others: Sequence[Mapping[str, Any] | None], rounds: int) -> bool:
    """Whether none of those who have not begun so many exchanges does something that may take long."""
    return all(one is None or one["in_step"] for one in others if one is None or one["rounds"] < rounds)


def described(others: Sequence[Mapping[str, Any] | None]) -> str:
    """A line for each process; of many, those first that are behind."""
    most = max((one["rounds"] for one in others if one), default=0)
    numbers = sorted(range(len(others)), key=lambda index: _rank(others[index], most))
    lines = [f"  process {index}: {_described(others[index])}" for index in numbers[:MOST_SHOWN]]
    left = len(others) - len(lines)
    return "\n".join([*lines, *([f"  and {left} more, which wait"] if left else [])])


def _rank(one: Mapping[str, Any] | None, most: int) -> int:
    return 0 if one is None else 1 if one["rounds"] < most else 2


def _described(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "gives no sign of life"
    does = f"{one['place']}, for {one['seconds']:.0f} s"
    where = "waits for the others" if one["waits"] else f"in {one['line']}"
    return f"{does}, {where} ({one['process']})"


def _line(frame: FrameType | None) -> str:
    """The innermost line of code that is being run."""
    if frame is None:
        return "no line of Python"
    last = traceback.extract_stack(frame, limit=1)[-1]
    return f"{os.path.basename(last.filename)}:{last.lineno} ({last.name})"
