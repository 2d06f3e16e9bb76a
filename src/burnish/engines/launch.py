"""Starts the processes of a run on this machine, by torch's elastic agent (what `torchrun` runs)."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from burnish.core.errors import ProcessError, SettingError

logger = logging.getLogger(__name__)

SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1")
"""Handed on to every process; a run ends with a checkpoint on the first, second and last of them."""

MISUSED = 2
"""Exit code of a command whose settings cannot be."""

STOPPED = tuple(128 + int(signal.Signals[name]) for name in ("SIGTERM", "SIGINT", "SIGUSR1"))
"""Exit codes of a run that was asked to stop, and has saved."""

AGENT = ("torch.distributed.elastic", "torch.distributed.launcher")
"""Packages of torch's agent."""

ENVIRONMENT = {
    # Between the signal and the end: the step, and its checkpoint. Whoever sent the signal has a limit of their own.
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "3600",
}


def run_in_processes(command: Sequence[str], count: int, max_restarts: int = 0) -> int:
    """Runs a command line of this Python in `count` processes, and waits for them. Signals go to all of them.

    Args:
        command: arguments for Python, such as ``["-m", "burnish", "train", ...]``.
        max_restarts: how often all of them are started again when one has failed. Not after `MISUSED`, which would come
            again, nor when a signal to one of them asked the run to stop.

    Returns:
        The exit code: 0, that of the process that failed first, or 128 + number for a signal that came to this process.

    Raises:
        ProcessError: the process that failed first was killed.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException

    threads = str(max(1, (os.cpu_count() or 1) // count))
    with _environment({**ENVIRONMENT, "OMP_NUM_THREADS": threads}), _said_briefly(), _own_handlers():
        try:
            for restart in range(1, max_restarts + 1):
                index, code = _ended(command, count)
                if code in (0, MISUSED, *STOPPED):
                    return code
                logger.warning(
                    "Process %d of %d %s. All are started again (%d of %d times).",
                    *(index, count, _how_it_ended(code), restart, max_restarts),
                )
            index, code = _ended(command, count)
        except SignalException as error:
            return 128 + int(error.sigval)
    if code < 0:
        raise ProcessError(f"Process {index} of {count} {_how_it_ended(code)}.")
    return code


def _ended(command: Sequence[str], count: int) -> tuple[int, int]:
    """Runs the processes once. The first to fail and its exit code, below 0 for the signal that killed it; or zeros."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        run_id=f"burnish-{os.getpid()}",  # the same at every start, by which a run knows that it goes on
        max_restarts=0,
        monitor_interval=0.2,
        signals_to_handle=",".join(SIGNALS),
    )
    try:
        elastic_launch(config, sys.executable)(*command)
    except ChildFailedError as error:
        index, failure = error.get_first_failure()
        return index, int(failure.exitcode)
    return 0, 0


def _how_it_ended(code: int) -> str:
    return f"was killed ({signal.Signals(-code).name})" if code < 0 else f"has failed (exit code {code})"


def checked_count(count: int, use_cpu: bool) -> int:
    """The number of processes that are to be started.

    Raises:
        SettingError: it is not 1 or more, or more than there are GPUs.
    """
    if count < 1:
        raise SettingError(f"--num_processes {count}: set it to 1 or more.")
    if count == 1 or use_cpu:
        return count
    import torch

    gpus = torch.cuda.device_count()
    if 0 < gpus < count:
        raise SettingError(
            f"num_processes={count}, and this machine has {gpus} GPUs, one for each process. Set num_processes to "
            f"{gpus} or less, or use_cpu=True."
        )
    return count


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables for the processes that are started inside; those that the user has set stay."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _own_handlers() -> Iterator[None]:
    """What this process does at a signal is afterwards what it was: the agent leaves its own handlers behind."""
    handlers = {number: signal.getsignal(number) for number in map(signal.Signals.__getitem__, SIGNALS)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:  # set by code that is not Python's
                signal.signal(number, handler)


@contextmanager
def _said_briefly() -> Iterator[None]:
    """Each process says what happened to it; the agent's own reports and advice are left out. Each of its modules has
    a logger with a level of its own, made when it is imported."""
    importlib.import_module("torch.distributed.launcher.api")
    names = [name for name in logging.root.manager.loggerDict if name.startswith(AGENT)]
    loggers = [logging.getLogger(name) for name in {*names, *AGENT}]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
