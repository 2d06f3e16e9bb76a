"""The manifest of a run on the disk, and whether the process that wrote it lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from burnish.checkpoint.process import is_alive, this_process
from burnish.checkpoint.run_manifest import FINISHED, RunManifest, now
from burnish.core.errors import UserError


def test_it_comes_back_as_it_was_written(tmp_path: Path) -> None:
    run = RunManifest(run_id="a", command="burnish train", settings={"seed": {"value": 1, "origin": "flag"}})
    run.write(tmp_path / "new")
    assert RunManifest.read(tmp_path / "new") == run
    assert RunManifest.read(tmp_path / "new" / "run.json") == run
    assert RunManifest.read(tmp_path) is None
    assert os.listdir(tmp_path / "new") == ["run.json"]


def test_fields_of_a_later_release_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"run_id": "a", "colour": "blue"}))
    assert RunManifest.read(tmp_path) == RunManifest(run_id="a")


def test_one_that_is_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UserError, match=r"run\.json cannot be read"):
        RunManifest.read(tmp_path)


def test_only_a_finished_run_has_a_time_when_it_was(tmp_path: Path) -> None:
    run = RunManifest(ended=now())
    assert run.finished is None
    run.state = FINISHED
    assert run.finished == run.ended


def test_this_process_lives_and_others_do_not() -> None:
    me = this_process()
    assert is_alive(me) is True
    assert is_alive({**me, "host": "elsewhere"}) is None
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    assert is_alive({**me, "pid": child.pid}) is False
    assert is_alive({}) is None
    if me["began"] is not None:
        assert is_alive({**me, "began": me["began"] - 1}) is False
