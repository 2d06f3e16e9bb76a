"""What the processes of a run tell each other on the host, on a gloo group of their own: it never waits for a GPU."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from burnish.core.errors import ProcessError, SettingError, mark_said
from burnish.core.processes import SHELL, Alone, default_backend, join, launch, meeting
from burnish.core.protocols import Processes

from .watch import MOST_SHOWN, Watch, are_in_steps, described, store_for

logger = logging.getLogger(__name__)

T = TypeVar("T")

WIDTH = 16
"""Numbers that a process says at once. The first two are for the mechanism: how it is, and how many bytes follow."""

FINE, FAILED = 0.0, 1.0

WORDS = "burnish: a process has failed"
"""Key of what a process says that could not reach the others."""

PATIENCE = timedelta(seconds=5)
"""How long a process that fails waits for the others to hear of it. Those in the middle of a step learn of it when this
process ends."""

_GONE = (
    "Another process of this run has ended, or is out of reach, while this one waited for it. Its own message says "
    "why; one that was killed, as where a machine has run out of memory, leaves none. If it came to the end of its "
    "script: evaluate(), predict() and, of a model in parts, save_model() are called on every process."
)


class Group:
    """The processes of a run.

    Whatever they say goes the same way: a row of numbers from each, then bytes where a row announces some. So a process
    that fails is heard by the others wherever they are: they get its words in place of what they waited for.

    Every method but `tell` and `at` is called by all processes, in the same order.

    Args:
        timeout: longest wait for another process.
        hang_timeout: longest wait for one that is in a step, in seconds; 0: as long as for others.
    """

    def __init__(self, timeout: timedelta, hang_timeout: float = 0.0) -> None:
        here = launch()
        self.count, self.index, self.local_index = here.count, here.index, here.local_index
        self._group = dist.new_group(backend="gloo", timeout=timeout)
        self._told: BaseException | None = None
        self._rounds, self._timeout = 0, timeout
        self._watch: Watch | None = None
        if hang_timeout > 0:
            store = store_for(self.index, self.from_first)
            self.table([])  # process 0 stays until all have reached the store: one that still looks for it would wait
            self._watch = None if store is None else Watch(self.index, self.count, store, hang_timeout)

    def at(self, place: str, in_step: bool = False) -> None:
        """Says where this process is, for the message of a run that hangs."""
        if self._watch is not None:
            self._watch.at(place, in_step)

    def table(self, numbers: Sequence[float]) -> list[list[float]]:
        """The numbers that each process gives, in the order of the processes. At most 14; whole ones up to 2^53.

        Raises:
            ProcessError: another process has failed.
        """
        return self._said(numbers)[0]

    def all_of(self, value: T) -> list[T]:
        """The value of each process, in their order. Raises as `table`."""
        return [pickle.loads(content) for content in self._said((), pickle.dumps(value))[1]]

    def from_first(self, make: Callable[[], T]) -> T:
        """What `make` gives on process 0, where alone it is called. Raises as `table`, and on process 0 as `make`."""
        content = pickle.dumps(make()) if self.index == 0 else b""
        made: T = pickle.loads(self._said((), content)[1][0])
        return made

    def tell(self, error: BaseException) -> None:
        """Tells the others that this process fails. Where all fail together, each goes on with its own error.

        Raises:
            ProcessError: the others are gone, which is why this process fails too.
        """
        if error is self._told or isinstance(error, ProcessError):
            return
        self._told = error
        content = pickle.dumps((self.index, type(error).__name__, str(error)))
        try:
            rows, contents = self._round(FAILED, (), content, PATIENCE)
            before = zip(rows[: self.index], contents, strict=False)
            if any(row[0] == FAILED and _words(said) == _words(content) for row, said in before):
                mark_said(error)
        except RuntimeError as unheard:
            if _is_lost(error) and _is_lost(unheard):
                raise self._gone() from error
            self._leave_words(content)
            logger.debug("The other processes did not hear of the failure: %s", unheard)

    def _leave_words(self, content: bytes) -> None:
        """For those who are in the middle of a step."""
        store = meeting()
        if store is not None:
            with contextlib.suppress(RuntimeError):
                store.set(WORDS, content)

    def _gone(self) -> ProcessError:
        """Why another process has gone, where it said so."""
        with contextlib.suppress(RuntimeError):  # the store may have gone with it
            store = meeting()
            if store is not None and store.check([WORDS]):
                return _said(self._described(store.get(WORDS)))
        return ProcessError(_GONE)

    def _described(self, content: bytes) -> str:
        index, kind, words = pickle.loads(content)
        return f"Process {index} of {self.count} has failed: {kind}: {words}"

    def _said(self, numbers: Sequence[float], content: bytes = b"") -> tuple[list[list[float]], list[bytes]]:
        rows, contents = self._heard(numbers, content)
        for index, row in enumerate(rows):
            if row[0] == FAILED:
                raise _said(self._described(contents[index]))
        return [row[2 : 2 + len(numbers)] for row in rows], contents

    def _heard(self, numbers: Sequence[float], content: bytes) -> tuple[list[list[float]], list[bytes]]:
        try:
            return self._round(FINE, numbers, content)
        except RuntimeError as error:
            if not _is_lost(error):
                raise
            raise self._gone() from error

    def _round(
        self, state: float, numbers: Sequence[float], content: bytes, patience: timedelta | None = None
    ) -> tuple[list[list[float]], list[bytes]]:
        """Says something, and hears what the others say."""
        assert len(numbers) <= WIDTH - 2, "more numbers than go into a row"
        table = torch.zeros(self.count, WIDTH, dtype=torch.float64)
        table[self.index, : 2 + len(numbers)] = torch.tensor([state, len(content), *numbers], dtype=torch.float64)
        # a sum of rows of which each process fills its own: one call of gloo, in place
        work = dist.all_reduce(table, group=self._group, async_op=True)
        if self._watch is None or patience is not None:
            _wait(work, patience)
        else:
            self._watched(work, self._watch)
        rows: list[list[float]] = table.tolist()
        contents = []
        for index, row in enumerate(rows):
            part = torch.frombuffer(bytearray(content), dtype=torch.uint8) if index == self.index and content else None
            if row[1]:
                part = torch.empty(int(row[1]), dtype=torch.uint8) if part is None else part
                source = dist.get_global_rank(self._group, index)
                _wait(dist.broadcast(part, source, group=self._group, async_op=True), patience)
            contents.append(b"" if part is None else part.numpy().tobytes())
        return rows, contents

    def _watched(self, work: Any, watch: Watch) -> None:
        """Waits for all processes; not longer than the limit for those that are in a step.

        Raises:
            ProcessError: one of them hangs.
        """
        self._rounds += 1
        done = threading.Event()
        work.get_future().then(lambda _: done.set())
        watch.waits(self._rounds, True)
        waited, most = 0.0, 0.95 * self._timeout.total_seconds()  # afterwards gloo gives up, without a word
        while not done.wait(min(watch.limit, most - waited)):
            waited += min(watch.limit, most - waited)
            others = watch.others()
            if not done.is_set() and (waited >= most or are_in_steps(others, self._rounds)):
                raise self._hanging(others, waited)
        watch.waits(self._rounds, False)
        work.wait()

    def _hanging(self, others: Sequence[Any], waited: float) -> ProcessError:
        missing = [str(index) for index, one in enumerate(others) if one is None or one["rounds"] < self._rounds]
        error = ProcessError(
            f"The run hangs: {len(missing)} of {self.count} processes ({', '.join(missing[:MOST_SHOWN])}) did not come "
            f"to where the others have waited for {waited:.0f} s (hang_timeout, ddp_timeout).\n{described(others)}"
        )
        if any(one is not None and one["rounds"] == self._rounds for one in others[: self.index]):
            mark_said(error)
        return error


def processes_for(args: Any) -> Processes:
    """The processes that the launcher started, or this one alone. The group is made on the first call, with the
    settings `ddp_backend` and `ddp_timeout`; one that a user or accelerate has made is taken as it is.

    Raises:
        SettingError: the launcher contradicts the group, does not say where its processes meet, or has started one
            where several were asked for.
    """
    global _known
    timeout = timedelta(seconds=args.ddp_timeout)
    if not join(args.ddp_backend or default_backend(args.use_cpu), timeout):
        _refuse_lost_launch()
        return Alone()
    world, found = _known
    if found is None or world is None or world() is not dist.group.WORLD:
        found = Group(timeout, args.hang_timeout)
        _known = weakref.ref(dist.group.WORLD), found
    return found


def warn_of_runs_side_by_side() -> None:
    """srun has started several torchruns, none of which knows of another one: --nnodes was forgotten, or left out."""
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if os.environ.get("GROUP_WORLD_SIZE") == "1" and tasks != "1" and launch().index == 0 and SHELL not in os.environ:
        _warn_of_launchers(tasks)


@functools.cache
def _warn_of_launchers(count: str) -> None:
    """Once, however many trainers there are."""
    logger.warning(
        "srun has started %s launchers, and each of them makes a run of its own: for one run, tell torchrun "
        "--nnodes=%s and a --rdzv-endpoint. Runs of their own need folders of their own.",
        *(count, count),
    )


_known: tuple[Any, Group | None] = None, None
"""The process group of now, and what was made for it."""


def _refuse_lost_launch() -> None:
    """`accelerate launch --cpu` says where several processes meet, and starts one."""
    told = {"ACCELERATE_USE_CPU", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
    if told and "WORLD_SIZE" not in os.environ and os.environ["ACCELERATE_USE_CPU"].lower() in ("true", "1"):
        raise SettingError(
            "accelerate launch was asked for several processes on the CPU and has started one, as it does with --cpu. "
            "Start them with torchrun --nproc_per_node=N, or accelerate launch --multi_gpu --num_processes=N and "
            "use_cpu=True. To train in one process, set --num_processes=1 (or unset MASTER_ADDR)."
        )


def _said(words: str) -> ProcessError:
    """What another process says itself."""
    error = ProcessError(words)
    mark_said(error)
    return error


def one_group(backend: str) -> None:
    """A process group of torch's of this process alone, where there is none: DeepSpeed needs one. It stays."""
    if not dist.is_initialized():
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def _words(content: bytes) -> Any:
    return pickle.loads(content)[1:]


def _is_lost(error: BaseException) -> bool:
    """Whether an error says that other processes cannot be reached; gloo and NCCL have no class for it."""
    words = ("Connection closed by peer", "Connection reset by peer", "Timed out waiting", "gloo", "NCCL")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def _wait(work: Any, patience: timedelta | None) -> None:
    if patience is None:
        work.wait()
    else:
        work.wait(patience)
