"""Real processes for the tests: forked from one that has imported everything, together over gloo."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

LONGEST = 60.0
"""Seconds that the processes of a test may take together; they are killed then."""


class Ended:
    """How a process has ended: with a value, or with an error and its words."""

    def __init__(self, value: Any = None, error: str | None = None, words: str = "", seconds: float = 0.0) -> None:
        self.value, self.error, self.words, self.seconds = value, error, words, seconds

    def __repr__(self) -> str:
        return f"{self.error}: {self.words}" if self.error else f"value {self.value!r:.200}"


def in_processes(
    count: int, folder: Path, work: Callable[..., Any], *given: Any, hanging: int | None = None, **named: Any
) -> list[Ended]:
    """Calls `work(*given)` in `count` processes with the environment that torchrun gives them; how each has ended. The
    one that is said to hang is killed when the others have ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fork = multiprocessing.get_context("fork")
    answers = [folder / f".answer-{time.monotonic_ns()}-{index}" for index in range(count)]
    folder.mkdir(parents=True, exist_ok=True)
    started = [
        fork.Process(target=_child, args=(index, count, port, answer, work, given, named))
        for index, answer in enumerate(answers)
    ]
    for process in started:
        process.start()
    end = time.monotonic() + LONGEST
    for process in (one for index, one in enumerate(started) if index != hanging):
        process.join(max(0.0, end - time.monotonic()))
    for process in started:
        if process.is_alive():
            process.kill()
            process.join()
    return [_answer(answer) for answer in answers]


def values(ended: list[Ended]) -> list[Any]:
    """What the processes returned; fails where one of them did."""
    assert [one.error for one in ended] == [None] * len(ended), ended
    return [one.value for one in ended]


def _answer(path: Path) -> Ended:
    if not path.exists():
        return Ended(error="Killed", words="it did not end, or ended without a word")
    ended: Ended = pickle.loads(path.read_bytes())
    return ended


def _child(index: int, count: int, port: int, answer: Path, work: Any, given: Any, named: Any) -> None:
    os.environ.update(
        RANK=str(index),
        LOCAL_RANK=str(index),
        WORLD_SIZE=str(count),
        LOCAL_WORLD_SIZE=str(count),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    if count == 1:
        del os.environ["WORLD_SIZE"]
    torch.set_num_threads(1)
    _forget_the_parent()
    began = time.monotonic()
    try:
        ended = Ended(value=work(*given, **named))
    except BaseException as error:
        traceback.print_exc()
        words = " ".join([str(error), *getattr(error, "__notes__", [])])
        ended = Ended(error=type(error).__name__, words=words or str(getattr(error, "code", "")))
    ended.seconds = time.monotonic() - began
    draft = answer.with_suffix(".draft")
    draft.write_bytes(pickle.dumps(ended))
    draft.rename(answer)
    if ended.error is None and dist.is_initialized():
        dist.destroy_process_group()
    os._exit(0 if ended.error is None else 1)


def _forget_the_parent() -> None:
    """What accelerate knows of the processes is of the process that it was forked from, where other tests have run."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
