"""Which process of a run this is, and how the processes come together.

A launcher (torchrun, `accelerate launch`, srun, mpirun) tells each process its number in the environment. Nothing is
started, and torch is not loaded, until somebody needs the others.
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
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

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


class Names(NamedTuple):
    """Variables of the environment that say where a process stands."""

    how_many: str
    which: str
    which_on_machine: str


TORCHRUN = Names("WORLD_SIZE", "RANK", "LOCAL_RANK")
"""Those of torch. Where they are set, they count: WORLD_SIZE=1 makes a process of the others below one alone."""

SCHEDULERS = {
    "mpirun": Names("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "mpiexec": Names("PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"),
    "srun": Names("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"),
}
"""Those of what starts processes without saying where they meet: Open MPI, MPICH and Intel MPI, SLURM. In a job of
SLURM the first two reach each machine by an srun, whose numbers their processes see as well."""

HOW_TO_MEET = {
    "srun": "Write `export MASTER_PORT=29500 MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)` "
    "before srun (examples/slurm.sh)",
    "mpirun": "Write `mpirun -x MASTER_ADDR=first-machine -x MASTER_PORT=29500`",
    "mpiexec": "Write `mpiexec -genv MASTER_ADDR first-machine -genv MASTER_PORT 29500`",
}

SHELL = "SLURM_PTY_PORT"
"""Set in a shell that srun has started (--pty), whatever number of tasks it has been given, and in all that begins
there."""


def launch() -> Launch:
    """Of the process group where there is one, else what the launcher says (`TORCHRUN`, `SCHEDULERS`).

    Raises:
        SettingError: the launcher and the group contradict each other.
    """
    names = SCHEDULERS.get(scheduler() or "", TORCHRUN)
    told = Launch(_number(names.how_many, 1), _number(names.which, 0), _number(names.which_on_machine, 0))
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return told
    count, index = dist.get_world_size(), dist.get_rank()
    says_other_count = names.how_many in os.environ and count != told.count
    if says_other_count or (names.which in os.environ and index != told.index):
        raise SettingError(
            f"The launcher says that this is process {told.index} of {told.count} ({names.which}, {names.how_many}), "
            f"and the process group that exists says {index} of {count}. Make the group with the numbers of the "
            "launcher, or none: burnish makes it."
        )
    return Launch(count, index, told.local_index if names.which_on_machine in os.environ else index)


def scheduler() -> str | None:
    """Which of `SCHEDULERS` has started this process as one of several, without a launcher of torch in between."""
    if TORCHRUN.how_many in os.environ:
        return None
    several = [name for name, names in SCHEDULERS.items() if _number(names.how_many, 1) > 1]
    if "srun" in several and _is_of_a_shell():
        several.remove("srun")
    # srun --mpi=pmi2 says some of what mpiexec says
    complete = [name for name in several if all(variable in os.environ for variable in SCHEDULERS[name])]
    return next(iter(complete + several), None)


def _is_of_a_shell() -> bool:
    """Whether this process was started in a shell of srun, and not by another srun there, whose processes have no
    terminal."""
    if SHELL not in os.environ:
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY))
    except OSError:
        return False
    return True


def gpu_index() -> int:
    """Number of the GPU of this process among those that it sees: its own on the machine, or 0 where srun or mpirun
    shows each process one alone (--gpus-per-task=1)."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return 0 if scheduler() and shown and "," not in shown else launch().local_index


def join(backend: str, timeout: timedelta) -> bool:
    """Brings the processes of the launcher together as torch's process group; one that exists is taken as it is.

    Returns:
        Whether there are several.

    Raises:
        SettingError: the launcher does not say where they meet.
    """
    here = launch()
    if here.count == 1:
        return False
    import torch.distributed as dist

    if not dist.is_initialized():
        check_meeting_place()
        from torch.distributed.rendezvous import rendezvous

        store, index, count = next(iter(rendezvous("env://", here.index, here.count, timeout=timeout)))
        dist.init_process_group(backend, store=store, rank=index, world_size=count, timeout=timeout)
        _meeting[:] = [store]
        _turns.clear()
    return True


def check_meeting_place() -> None:
    """Raises `SettingError` where processes that were started together do not know where they meet."""
    name = scheduler()
    names = SCHEDULERS[name] if name else TORCHRUN
    needed = (*(names if name else ("RANK",)), "MASTER_ADDR", "MASTER_PORT")
    missing = [variable for variable in needed if variable not in os.environ]
    if not missing:
        return
    unset = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
    if name is None:
        raise SettingError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, and {unset}: start the processes with torchrun or accelerate "
            "launch, which set all of them; or unset WORLD_SIZE to train in one."
        )
    # said by all of them: mpirun ends the others as soon as one has ended
    raise SettingError(
        f"{name} has started {os.environ[names.how_many]} processes ({names.how_many}), which do not know where they "
        f"meet: {unset}. {HOW_TO_MEET[name]}, or start one torchrun on each machine. For as many runs that have "
        "nothing to do with each other, each in a folder of its own, set WORLD_SIZE=1."
    )


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
    """What all starts of a run by one launcher have in common, and no other run: torchrun's name of it, or the number
    of a job that SLURM queues again. None without one that starts again."""
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    if name == "none":  # the default of torchrun
        return f"{platform.node()}:{os.getppid()}"
    if name is None and os.environ.get("ENVIRONMENT") == "BATCH" and "SLURM_JOB_ID" in os.environ:
        return f"slurm:{os.environ.get('SLURM_CLUSTER_NAME', '')}:{os.environ['SLURM_JOB_ID']}"
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
