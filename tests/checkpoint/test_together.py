"""What the first process hears of the others while they write. Several real processes are in `tests/distributed`."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint import snapshots

from burnish.checkpoint import files, parts, process, staging, store, together
from burnish.checkpoint.verify import problem_with
from burnish.core.errors import CheckpointError
from burnish.core.processes import Alone

ELSEWHERE = {"host": "another-machine", "pid": 1, "began": 1}


def begun(output_dir: Path, other: dict[str, Any]) -> together.Begun:
    """A checkpoint of two processes, as the first one knows it, which has written its part."""
    snapshot = snapshots.snapshot(optimizer=None, scheduler=None, model_written=True)
    folder = store.stage(output_dir, 2, snapshot)
    parts.make_place(folder)
    members = [together.Member(one, 0, None) for one in (process.this_process(), other)]
    part = parts.Part({"model.a": torch.zeros(2)}, {"model.a": [0]})
    made = together.Begun(folder, output_dir / "checkpoint-2", snapshot, part, Alone(), members)
    made.write_part()
    return made


def sealed(one: together.Begun) -> Path:
    return store.write(one.target.parent, 2, one.snapshot, one.folder, one.of_all)


def another_process() -> Any:
    """One that lives until it is killed."""
    made = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    made.start()
    return made


def maker_of(pid: int) -> dict[str, Any]:
    return {**process.this_process(), "pid": pid, "began": process._began(pid)}


def test_one_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    other = another_process()
    one = begun(tmp_path, maker_of(other.pid or 0))
    other.kill()
    other.join()
    with pytest.raises(CheckpointError, match="process 1 has ended before it had written its part"):
        sealed(one)
    assert list(tmp_path.iterdir()) == []


def test_what_one_that_has_ended_had_written_counts(tmp_path: Path) -> None:
    other = another_process()
    one = begun(tmp_path, maker_of(other.pid or 0))
    leave_record(one, 1)
    other.kill()
    other.join()
    assert problem_with(sealed(one)) is None


def leave_record(one: together.Begun, index: int) -> None:
    """As another process does."""
    path = one.folder / "parts" / "part-00002-of-00002.safetensors"
    path.write_bytes((one.folder / "parts" / "part-00001-of-00001.safetensors").read_bytes())
    found = {f"parts/{path.name}": {"bytes": path.stat().st_size, "sha256": files.sha256(path)}}
    files.replace_json(one.folder / f".part-{index}", {"files": found})


def test_one_on_another_machine_is_waited_for(tmp_path: Path) -> None:
    one = begun(tmp_path, ELSEWHERE)
    threading.Timer(0.3, leave_record, (one, 1)).start()
    checkpoint = sealed(one)
    assert problem_with(checkpoint) is None
    assert sorted(path.name for path in (checkpoint / "parts").iterdir()) == [
        "part-00001-of-00001.safetensors",
        "part-00002-of-00002.safetensors",
    ]
    assert not list(checkpoint.glob(".*"))


def test_one_on_another_machine_that_gives_no_sign_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "SIGN_OF_LIFE", 0.2)
    one = begun(tmp_path, ELSEWHERE)
    with pytest.raises(CheckpointError, match="nothing was heard of process 1"):
        sealed(one)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_elsewhere_is_the_failure_of_all(tmp_path: Path) -> None:
    one = begun(tmp_path, ELSEWHERE)
    files.replace_json(one.folder / ".part-1", {"failure": "the disk is full"})
    with pytest.raises(CheckpointError, match=r"checkpoint-2 could not be written in .*: process 1: the disk is full"):
        sealed(one)
    assert list(tmp_path.iterdir()) == []


class Unwritten:
    """As what a process holds on whose disk the weights of all cannot be gathered."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def whole(self) -> dict[str, Any]:
        self.called.append("whole")
        raise OSError(28, "No space left on device")

    def save(self, folder: Path) -> None:
        self.called.append("save")

    def part(self) -> None:
        self.called.append("part")


def test_a_process_that_fails_takes_part_in_what_follows(tmp_path: Path) -> None:
    """The others have not failed, and would wait for it."""
    held = Unwritten()
    snapshot = snapshots.snapshot(optimizer=None, scheduler=None)
    failed = together.begin(tmp_path / "checkpoint-2", snapshot, Alone(), held)
    assert isinstance(failed, CheckpointError) and "No space left" in str(failed)
    assert held.called == ["whole", "save", "part"]
    assert list(tmp_path.iterdir()) == []
