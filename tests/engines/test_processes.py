"""What is said of processes that a launcher has started otherwise than was meant."""

from __future__ import annotations

import logging

import pytest

from burnish import TrainingArguments
from burnish.core.errors import SettingError
from burnish.engines.choice import engine_for
from burnish.engines.processes import _warn_of_launchers, processes_for


@pytest.fixture
def args(tmp_path, monkeypatch):
    for name in ("WORLD_SIZE", "GROUP_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_PTY_PORT", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    _warn_of_launchers.cache_clear()
    return TrainingArguments(str(tmp_path), use_cpu=True)


def test_processes_of_srun_are_not_as_many_runs_in_one_folder(args, monkeypatch):
    for name, value in {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match="srun has started 2 processes"):
        processes_for(args)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert processes_for(args).count == 1


@pytest.mark.parametrize(("launchers", "machines", "warns"), [("2", "1", True), ("2", "2", False), ("1", "1", False)])
def test_launchers_that_do_not_know_of_each_other(launchers, machines, warns, args, monkeypatch, caplog):
    monkeypatch.setenv("WORLD_SIZE", "1")  # one process each
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", launchers)
    monkeypatch.setenv("GROUP_WORLD_SIZE", machines)
    with caplog.at_level(logging.WARNING):
        assert engine_for(args).num_processes == 1
    assert ("srun has started 2 launchers" in caplog.text) is warns
