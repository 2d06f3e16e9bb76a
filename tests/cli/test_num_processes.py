"""`burnish train --num_processes N`: one output, one exit code, and a run that goes on when a process is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from burnish.cli.main import main
from burnish.cli.train import starts_processes
from burnish.core.errors import SettingError


class Asked:
    """The part of the settings that says how many processes there are to be."""

    def __init__(self, num_processes: int | None, max_restarts: int = 0) -> None:
        self.run = {"num_processes": num_processes, "max_restarts": max_restarts}


@pytest.mark.parametrize(("asked", "launched", "starts"), [
    (None, None, False), (1, None, False), (2, None, True), (None, 2, False), (2, 2, False)
])  # fmt: skip
def test_who_starts_processes(asked: Any, launched: Any, starts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if launched:
        monkeypatch.setenv("WORLD_SIZE", str(launched))
    assert starts_processes(Asked(asked)) is starts


def test_two_launchers_that_contradict_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(SettingError, match=r"--num_processes 2, and the launcher has started 4"):
        starts_processes(Asked(2))


def test_restarts_without_processes_to_start(train_words, capfd):
    assert main([*train_words, "--max_restarts", "2"]) == 2
    assert "--max_restarts needs --num_processes" in capfd.readouterr().err


def test_a_mistake_is_said_once_and_before_anything_is_started(train_words, capfd):
    assert main([*train_words, "--num_processes", "0"]) == 2
    assert capfd.readouterr().err.count("num_processes 0") == 1


def started(words: list[str], *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "burnish", *words, "--num_processes", "2", *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None and time.monotonic() < end, "it did not come so far"
        time.sleep(0.05)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=180)
    return process.returncode, out, err


@pytest.mark.slow
def test_one_process_prints_and_a_signal_saves_once(train_words, tmp_path):
    out = tmp_path / "out"
    run = started(train_words, "--num_train_epochs", "3000", "--save_strategy", "no", "--eval_strategy", "no")
    wait_for(out / "log.jsonl", run)
    run.send_signal(signal.SIGTERM)
    code, said, complained = ended(run)
    assert code == 143, complained
    assert said.count("plan\n") == 1 and "16 examples a step (8 × 2)" in said
    assert complained.count("The same command goes on from") == 1 and "Traceback" not in complained
    assert "death signal" not in complained  # what torch's launcher calls it
    assert len(list(out.glob("checkpoint-*"))) == 1
    assert json.loads((out / "run.json").read_text())["state"] == "stopped"


@pytest.mark.slow
def test_a_killed_process_is_started_again_and_goes_on(train_words, tmp_path):
    """With --overwrite_output_dir, which must not move aside what the first start has done."""
    out = tmp_path / "out"
    run = started(
        train_words, "--max_restarts", "1", "--overwrite_output_dir", "--eval_strategy", "no", "--save_strategy",
        "steps", "--save_steps", "2", "--max_steps", "60",
    )  # fmt: skip
    wait_for(out / "checkpoint-4", run)
    os.kill(process_with_rank(run.pid, 1), signal.SIGKILL)
    code, said, complained = ended(run)
    assert code == 0, complained
    assert "resuming" in said and not (tmp_path / "out.1").exists()
    manifest = json.loads((out / "run.json").read_text())
    assert manifest["state"] == "finished" and manifest["result"]["step"] == 60
    assert len(manifest["resumed"]) == 1 and manifest["resumed"][0]["step"] >= 4


def process_with_rank(launcher: int, rank: int) -> int:
    """The number of the process that the launcher has started as this one of the run."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    environments = {int(child): Path(f"/proc/{child}/environ").read_bytes().split(b"\0") for child in children}
    return next(child for child, variables in environments.items() if f"RANK={rank}".encode() in variables)


@pytest.mark.slow
def test_data_that_cannot_be_read_are_said_once(train_words, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("text,label\na b\n")
    run = started([str(bad) if word.endswith("train.csv") else word for word in train_words])
    code, _, complained = ended(run)
    assert code == 1
    assert complained.count("burnish: ") == 1 and "bad.csv, row 1" in complained
