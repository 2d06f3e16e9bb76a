"""What a run ran in."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from burnish.tracking import surroundings

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@needs_git
def test_the_state_of_the_code(tmp_path: Path) -> None:
    assert surroundings.git_state(tmp_path) is None
    (tmp_path / "train.py").write_text("1")
    git(tmp_path, "init", "-b", "main")
    assert surroundings.git_state(tmp_path) == {
        "folder": str(tmp_path), "commit": None, "branch": "main", "dirty": False
    }  # fmt: skip
    git(tmp_path, "add", "train.py")
    git(tmp_path, "commit", "-m", "one")
    (tmp_path / "below").mkdir()
    found = surroundings.git_state(tmp_path / "below")
    assert found is not None and len(found["commit"]) == 40 and found["dirty"] is False
    (tmp_path / "results.json").write_text("")  # a file that git does not know
    assert surroundings.git_state(tmp_path) == found
    (tmp_path / "train.py").write_text("2")
    assert surroundings.git_state(tmp_path) == {**found, "dirty": True}
    git(tmp_path, "checkout", "--detach")
    assert surroundings.git_state(tmp_path) == {**found, "dirty": True, "branch": None}


@needs_git
def test_a_repository_that_git_cannot_read_is_told_as_far_as_known(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    found = surroundings.git_state(tmp_path)
    assert found == {"folder": str(tmp_path), "commit": None, "branch": None, "dirty": None}


def test_the_machine() -> None:
    found = surroundings.hardware()
    assert found["processor"] and found["cores"] >= 1 and found["host"]
    assert found["memory_bytes"] > 1 << 28


def test_the_command_that_started_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.orig_argv", ["python", "-u", "a b.py", "--hub_token", "sesame"])
    assert surroundings.command_line() == "python -u 'a b.py' --hub_token '<HUB_TOKEN>'"
