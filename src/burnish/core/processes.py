"""Which process of a run this is, and how the processes come together.

A launcher (torchrun, `accelerate launch`) tells each process its number in the environment. Nothing is started, and
torch is not loaded, until somebody needs the others.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import SettingError

if TYPE_CHECKING:
    from .protocols import Processes

T = TypeVar("T")

TURN_SECONDS = 0.05
"""Between two looks whether the first process is done."""

_turns: dict[str, int] = {}
"""How often one process has gone before the others, by place."""

_meeting: list[Any] = []
"""The store of the process group that burnish made last."""


@dataclass(frozen=True)
class Launch:
    """Where this process stands."""

    count: int
    """Processes of the run."""
    index: int
    """Number of this one in the run, from 0."""
    local_index: int
    """Number of this one on its machine, from 0."""


def launch() -> Launch:
    """Of the process group where there is one, else what the launcher says in WORLD_SIZE, RANK and LOCAL_RANK.

    Raises:
        SettingError: the launcher and the group contradict each other.
    """
    told = Launch(_number("WORLD_SIZE", 1), _number("RANK", 0), _number("LOCAL_RANK", 0))
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return told
    count, index = dist.get_world_size(), dist.get_rank()
    if "WORLD_SIZE" in os.environ and (count, index) != (told.count, told.index):
        raise SettingError(
            f"The launcher says that this is process {told.index} of {told.count} (RANK, WORLD_SIZE), and the process "
            f"group that exists says {index} of {count}. Make the group with the numbers of the launcher, or none: "
            "burnish makes it."
        )
    return Launch(count, index, told.local_index if "LOCAL_RANK" in os.environ else index)


def join(backend: str, timeout: timedelta) -> bool:
    """Brings the processes of the launcher together as torch's process group; one that exists is taken as it is.

    Returns:
        Whether there are several.

    Raises:
        SettingError: the launcher does not say where they meet.
    """
    if launch().count == 1:
        return False
    import torch.distributed as dist

    if not dist.is_initialized():
        missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise SettingError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, and {', '.join(missing)} is not set: start the processes "
                "with torchrun or accelerate launch, which set all of them; or unset WORLD_SIZE to train in one."
            )
        from torch.distributed.rendezvous import rendezvous

        store, index, count = next(iter(rendezvous("env://", timeout=timeout)))
        dist.init_process_group(backend, store=store, rank=index, world_size=count, timeout=timeout)
        _meeting[:] = [store]
        _turns.clear()
    return True


def meeting() -> Any:
    """The key-value store where the processes met, for what cannot be said otherwise; None where burnish did not bring
    them together."""
    return _meeting[-1] if _meeting else None


def turns(place: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """For one process that goes before the others: what these call to wait for it, and what it calls when it is done.
    Called by all processes, as often. The wait has no limit where burnish brought the processes together.

    Args:
        place: of those who wait for one another, such as the name of a machine.
    """
    store = meeting()
    if store is None:
        import torch.distributed as dist

        return dist.barrier, dist.barrier
    _turns[place] = _turns.get(place, 0) + 1
    key = f"burnish: turn {_turns[place]} {place}"

    def wait() -> None:
        while not store.check([key]):
            time.sleep(TURN_SECONDS)

    return wait, lambda: store.set(key, "done")


def launcher() -> str | None:
    """What all starts of a run by one launcher have in common, and no other run; None without one that starts again."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    if name in (None, "none"):  # the default of torchrun
        return f"{platform.node()}:{os.getppid()}" if name else None
    return name


def default_backend(use_cpu: bool) -> str:
    """What the processes compute with: NCCL between GPUs, gloo between CPUs."""
    import torch

    return "nccl" if torch.cuda.is_available() and not use_cpu else "gloo"


class Alone:
    """The one process of a run that has no others."""

    count, index, local_index = 1, 0, 0

    def table(self, numbers: Sequence[float]) -> list[list[float]]:
        return [list(map(float, numbers))]

    def all_of(self, value: T) -> list[T]:
        return [value]

    def from_first(self, make: Callable[[], T]) -> T:
        return make()

    def at(self, place: str, in_step: bool = False) -> None:
        """Nobody waits."""

    def tell(self, error: BaseException) -> None:
        """Nobody has to hear of it."""


@contextlib.contextmanager
def told_to_all(processes: Processes) -> Iterator[None]:
    """An error inside is told to the other processes, which would wait for this one otherwise."""
    try:
        yield
    except BaseException as error:
        processes.tell(error)
        raise


def _number(name: str, otherwise: int) -> int:
    value: Any = os.environ.get(name, otherwise)
    try:
        return int(value)
    except ValueError:
        raise SettingError(f"The environment variable {name} is {value!r}; a launcher sets it to a number.") from None
