"""What launchers and schedulers say in the environment: which process this is, and where they meet."""

from __future__ import annotations

import subprocess
import sys

import pytest

from burnish.core.errors import SettingError
from burnish.core.processes import SCHEDULERS, TORCHRUN, Launch, check_meeting_place, gpu_index, launch, launcher

VARIABLES = [*TORCHRUN, *(name for names in SCHEDULERS.values() for name in names)]
VARIABLES += ["MASTER_ADDR", "MASTER_PORT", "SLURM_PTY_PORT", "CUDA_VISIBLE_DEVICES", "TORCHELASTIC_RUN_ID"]
VARIABLES += ["ENVIRONMENT", "SLURM_JOB_ID", "SLURM_CLUSTER_NAME"]


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def started(monkeypatch: pytest.MonkeyPatch, scheduler: str, *numbers: int) -> None:
    for name, number in zip(SCHEDULERS[scheduler], numbers, strict=True):
        monkeypatch.setenv(name, str(number))


@pytest.mark.parametrize("scheduler", list(SCHEDULERS))
def test_processes_of_a_scheduler_are_told_what_to_say_where_they_meet(scheduler, monkeypatch):
    started(monkeypatch, scheduler, 4, 3, 1)
    assert launch() == Launch(4, 3, 1)
    with pytest.raises(
        SettingError, match=rf"{scheduler} has started 4 processes .*MASTER_ADDR, MASTER_PORT are not set"
    ):
        check_meeting_place()
    monkeypatch.setenv("MASTER_ADDR", "first")
    monkeypatch.setenv("MASTER_PORT", "29500")
    check_meeting_place()


def test_a_number_that_is_missing_is_named(monkeypatch):
    """Not taken for 0, which would put all processes of a machine on one GPU."""
    for name, value in {"PMI_SIZE": "2", "PMI_RANK": "1", "MASTER_ADDR": "first", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match="MPI_LOCALRANKID is not set"):
        check_meeting_place()


def test_what_torch_is_told_counts(monkeypatch):
    """A torchrun that srun has started, and runs that are to have nothing to do with each other (WORLD_SIZE=1)."""
    started(monkeypatch, "srun", 4, 3, 1)
    for name, value in zip(TORCHRUN, ("8", "5", "1"), strict=True):
        monkeypatch.setenv(name, value)
    assert launch() == Launch(8, 5, 1)
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("LOCAL_RANK")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert launch() == Launch(1, 0, 0)


def test_one_task_is_one_process(monkeypatch):
    started(monkeypatch, "srun", 1, 0, 0)
    assert launch() == Launch(1, 0, 0)


WITH_A_TERMINAL = """
import os, pty
process, _ = pty.fork()
if process:
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""
COUNT = """
from burnish.core.processes import launch
raise SystemExit(launch().count)
"""


def counted(code: str) -> int:
    """Of how many a process thinks to be one that has no terminal, or one of its own."""
    return subprocess.run([sys.executable, "-c", code], start_new_session=True, timeout=60).returncode


def test_a_shell_of_srun_is_one_process_and_what_srun_starts_there_is_several(monkeypatch):
    started(monkeypatch, "srun", 8, 0, 0)
    monkeypatch.setenv("SLURM_PTY_PORT", "35977")
    assert (counted(WITH_A_TERMINAL + COUNT), counted(COUNT)) == (1, 8)
    started(monkeypatch, "mpirun", 4, 0, 0)
    assert counted(WITH_A_TERMINAL + COUNT) == 4


@pytest.mark.parametrize("scheduler", ["mpirun", "mpiexec"])
def test_mpi_in_a_job_of_slurm(scheduler, monkeypatch):
    """It starts something on each of two machines by srun, and this the processes."""
    started(monkeypatch, "srun", 2, 1, 0)
    started(monkeypatch, scheduler, 8, 5, 1)
    assert launch() == Launch(8, 5, 1)


def test_srun_with_pmi(monkeypatch):
    """Says some of what mpiexec says."""
    started(monkeypatch, "srun", 4, 3, 1)
    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("PMI_RANK", "3")
    assert launch() == Launch(4, 3, 1)


@pytest.mark.parametrize(("shown", "index"), [(None, 3), ("0,1,2,3", 3), ("2", 0)])
def test_the_gpu_of_a_process_that_sees_all_of_its_machine_or_its_own(shown, index, monkeypatch):
    started(monkeypatch, "srun", 4, 3, 3)
    if shown:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert gpu_index() == index


def test_under_torchrun_a_process_has_the_gpu_of_its_number(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert gpu_index() == 1


def test_a_batch_job_is_one_launcher_however_often_it_is_queued(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert launcher() is None  # somebody who tries things out in an allocation
    monkeypatch.setenv("ENVIRONMENT", "BATCH")
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "one")
    assert launcher() == "slurm:one:17"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "18")
    assert launcher() == "18"
