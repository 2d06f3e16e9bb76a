"""What is deleted is old, of this run, and neither the newest good one nor one that is kept."""

from __future__ import annotations

import errno
import math
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from checkpoint import snapshots

from burnish.checkpoint import in_use, manifest, retention, staging
from burnish.checkpoint.find import checkpoints
from burnish.checkpoint.retention import Retention, prune
from burnish.core.errors import CheckpointError


def steps(folder: Path) -> list[int]:
    return [int(path.name.split("-")[1]) for path in checkpoints(folder)]


def test_the_oldest_go_first(tmp_path: Path) -> None:
    made = snapshots.write(tmp_path, 2, 4, 10)
    assert prune(tmp_path, Retention(total=2), set(), "run-a") == [made[0]]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-10", "checkpoint-4"]


@pytest.mark.parametrize("limit", [None, 0, 3, 7])
def test_nothing_goes_without_a_limit_or_below_it(limit: int | None, tmp_path: Path) -> None:
    snapshots.write(tmp_path, 2, 4, 6)
    assert prune(tmp_path, Retention(total=limit), set(), "run-a") == []
    assert steps(tmp_path) == [2, 4, 6]


def test_the_best_stays_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots.write(tmp_path, 2, 4, 6)
    monkeypatch.chdir(tmp_path)
    prune(tmp_path, Retention(total=2), {Path("checkpoint-2")}, "run-a")
    assert steps(tmp_path) == [2, 6]
    prune(tmp_path, Retention(total=1), {Path("checkpoint-2")}, "run-a")
    assert steps(tmp_path) == [2, 6]


def test_the_newest_good_one_stays_where_later_ones_are_damaged(tmp_path: Path) -> None:
    made = snapshots.write(tmp_path, 2, 4, 6)
    (made[2] / "optimizer.pt").unlink()
    prune(tmp_path, Retention(total=1), set(), "run-a")
    assert 4 in steps(tmp_path)
    assert 2 not in steps(tmp_path)


def test_checkpoints_of_other_runs_neither_count_nor_go(tmp_path: Path) -> None:
    snapshots.write(tmp_path, 1, 8, run_id="run-a")
    snapshots.write(tmp_path, 2, 4, run_id="run-b")
    assert prune(tmp_path, Retention(total=2), set(), "run-b") == []
    prune(tmp_path, Retention(total=1), set(), "run-b")
    assert steps(tmp_path) == [1, 4, 8]


def test_a_deletion_that_is_cut_short_leaves_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots.write(tmp_path, 2, 4)
    with monkeypatch.context() as crash:
        crash.setattr(shutil, "rmtree", lambda *_, **__: None)
        prune(tmp_path, Retention(total=1), set(), "run-a")
    assert steps(tmp_path) == [4]
    staging.tidy(tmp_path)
    assert os.listdir(tmp_path) == ["checkpoint-4"]


def test_a_folder_that_cannot_be_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("not yours")

    snapshots.write(tmp_path, 2, 4)
    monkeypatch.setattr(os, "rename", refuse)
    assert prune(tmp_path, Retention(total=1), set(), "run-a") == []
    assert "checkpoint-2 could not be deleted: not yours" in caplog.text


STEPS = (2, 4, 6, 8, 10, 12)
SCORES = {2: 0.1, 4: 0.9, 6: 0.5, 8: 0.9, 10: math.nan, 12: 0.2}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of six steps, which tests copy."""
    folder = tmp_path_factory.mktemp("written") / "run"
    snapshots.write(folder, *STEPS)
    return folder


@pytest.mark.parametrize(
    ("rules", "stay"),
    [
        ({"last": 1}, [12]),
        ({"last": 3}, [8, 10, 12]),
        ({"best": 1}, [4, 12]),
        ({"best": 2}, [4, 8, 12]),
        ({"best": 3}, [4, 6, 8, 12]),
        ({"best": 2, "greater_is_better": False}, [2, 12]),
        ({"best": 9}, [2, 4, 6, 8, 12]),
        ({"best": 3, "metrics": {}}, [12]),
        ({"every_steps": 4}, [4, 8, 12]),
        ({"every_steps": 5}, [6, 10, 12]),
        ({"every_steps": 7}, [8, 12]),
        ({"every_steps": 100}, [12]),
        ({"total": 2, "best": 1}, [4, 12]),
        ({"total": 3, "best": 1}, [4, 10, 12]),
        ({"total": 2, "every_steps": 4}, [4, 6, 8, 10, 12]),
        ({"total": 1, "every_steps": 6}, [6, 10, 12]),
        ({"last": 2, "best": 1}, [4, 10, 12]),
        ({"last": 2, "best": 1, "every_steps": 6}, [4, 6, 10, 12]),
    ],
    ids=str,
)
def test_rules_and_their_combinations(rules: dict[str, Any], stay: list[int], written: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written, tmp_path / "run"))
    rule = Retention(**{"metrics": SCORES, "greater_is_better": True, **rules})
    prune(folder, rule, set(), "run-a")
    assert steps(folder) == stay
    assert prune(folder, rule, set(), "run-a") == []


@pytest.mark.parametrize(
    "rules", [{"last": 2}, {"every_steps": 4}, {"best": 1}, {"total": 3, "every_steps": 6}], ids=str
)
def test_what_stays_is_the_same_whether_it_is_asked_after_each_save_or_at_the_end(
    rules: dict[str, Any], written: Path, tmp_path: Path
) -> None:
    rule = Retention(**{"metrics": SCORES, "greater_is_better": True, **rules})
    (grown := tmp_path / "grown").mkdir()
    for step in STEPS:
        shutil.copytree(written / f"checkpoint-{step}", grown / f"checkpoint-{step}")
        prune(grown, rule, set(), "run-a")
    at_once = Path(shutil.copytree(written, tmp_path / "at once"))
    prune(at_once, rule, set(), "run-a")
    assert steps(grown) == steps(at_once)


def test_the_first_in_each_so_many_minutes_of_the_clock(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(written, tmp_path / "run"))
    clock = dict(zip(STEPS, ("10:50", "10:58", "11:03", "11:40", "12:00", "12:59"), strict=True))
    read = manifest.read

    def at(path: Path) -> dict[str, Any]:
        return {**read(path), "written": f"2025-03-01T{clock[int(path.name.split('-')[1])]}:00+00:00"}

    monkeypatch.setattr(manifest, "read", at)
    prune(folder, Retention(every_minutes=60), set(), "run-a")
    assert steps(folder) == [2, 6, 10, 12]
    prune(folder, Retention(every_minutes=120), set(), "run-a")
    assert steps(folder) == [2, 10, 12]


@pytest.mark.parametrize("rules", [{"last": 2}, {"best": 2}, {"total": 2}, {"every_steps": 12}], ids=str)
def test_a_damaged_one_takes_nobodys_place(rules: dict[str, Any], written: Path, tmp_path: Path) -> None:
    """Where two stay, two good ones do."""
    folder = Path(shutil.copytree(written, tmp_path / "run"))
    (folder / "checkpoint-12" / "optimizer.pt").unlink()
    (folder / "checkpoint-4" / "optimizer.pt").unlink()
    prune(folder, Retention(**{"metrics": SCORES, "greater_is_better": True, **rules}), set(), "run-a")
    good = [step for step in steps(folder) if step not in (4, 12)]
    assert good == {"last": [8, 10], "best": [6, 8, 10], "total": [8, 10], "every_steps": [10]}[next(iter(rules))]


def test_a_failure_to_look_through_them_is_one_warning(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(shutil.copytree(written, tmp_path / "run"))

    def fails(path: Path, checksums: bool = True) -> str | None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(retention, "problem_with", fails)
    assert prune(folder, Retention(last=1), set(), "run-a") == []
    assert caplog.text.count("Stale file handle") == 1
    monkeypatch.undo()
    prune(folder, Retention(last=1), set(), "run-a")
    assert steps(folder) == [12]


def test_one_that_stands_already_is_ranked_once(tmp_path: Path) -> None:
    """The weights of now are compared with what is on the disk, which they may be on already."""
    found = [tmp_path / f"checkpoint-{step}" for step in (2, 4)]
    ranked = Retention(best=2, metrics={2: 0.5, 4: 0.1}).by_metric([*found, tmp_path / "checkpoint-4"])
    assert ranked == [found[1], found[0]]


def test_one_that_is_read_stays_until_it_is_not(written: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written, tmp_path / "run"))
    with in_use.held(folder / "checkpoint-4"), in_use.held(folder / "checkpoint-4"):
        prune(folder, Retention(last=1), set(), "run-a")
        assert steps(folder) == [4, 12]
    prune(folder, Retention(last=1), set(), "run-a")
    assert steps(folder) == [12]


def test_one_that_is_read_is_not_replaced_until_it_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_use, "PATIENCE", 0.05)
    (checkpoint,) = snapshots.write(tmp_path, 4, run_id="old")
    with in_use.held(checkpoint), pytest.raises(CheckpointError, match="is being read"):
        snapshots.write(tmp_path, 4, run_id="new")
    assert manifest.read(checkpoint)["run_id"] == "old"
    snapshots.write(tmp_path, 4, run_id="new")
    assert manifest.read(checkpoint)["run_id"] == "new"
    assert os.listdir(tmp_path) == ["checkpoint-4"]


def test_one_that_is_being_deleted_is_not_begun_to_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_use, "PATIENCE", 0.05)
    (checkpoint,) = snapshots.write(tmp_path, 4)
    with in_use.claimed(checkpoint) as nobody_reads_it:
        assert nobody_reads_it
        with pytest.raises(CheckpointError, match="is being deleted"), in_use.held(checkpoint):
            pass
    with in_use.held(checkpoint), in_use.claimed(checkpoint) as nobody_reads_it:
        assert not nobody_reads_it


def test_a_reader_that_waits_for_a_replacement_holds_the_new_one(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 4, run_id="old")
    (new,) = snapshots.write(tmp_path / "elsewhere", 4, run_id="new")
    with in_use.claimed(checkpoint):
        reader = threading.Thread(target=lambda: read.append(_run_of_held(checkpoint)))
        read: list[str] = []
        reader.start()
        checkpoint.rename(tmp_path / "old")
        new.rename(checkpoint)
    reader.join()
    assert read == ["new"]


def _run_of_held(checkpoint: Path) -> str:
    with in_use.held(checkpoint):
        return str(manifest.read(checkpoint)["run_id"])


def test_one_that_another_process_reads_stays(written: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written, tmp_path / "run"))
    reads = f"""
import fcntl, os
fcntl.flock(os.open({str(folder / "checkpoint-2")!r}, os.O_RDONLY), fcntl.LOCK_SH)
print("holds it", flush=True)
input()
"""
    with subprocess.Popen([sys.executable, "-c", reads], stdin=-1, stdout=-1, text=True) as reader:
        assert reader.stdin and reader.stdout
        reader.stdout.readline()
        prune(folder, Retention(last=2), set(), "run-a")
        assert steps(folder) == [2, 10, 12]
        reader.communicate("\n")
    prune(folder, Retention(last=2), set(), "run-a")
    assert steps(folder) == [10, 12]
