"""What is deleted is old, of this run, and neither the newest good one nor one that is kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from checkpoint import snapshots

from burnish.checkpoint import staging
from burnish.checkpoint.find import checkpoints
from burnish.checkpoint.retention import prune


def steps(folder: Path) -> list[int]:
    return [int(path.name.split("-")[1]) for path in checkpoints(folder)]


def test_the_oldest_go_first(tmp_path: Path) -> None:
    made = snapshots.write(tmp_path, 2, 4, 10)
    assert prune(tmp_path, 2, set(), "run-a") == [made[0]]
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-10", "checkpoint-4"]


@pytest.mark.parametrize("limit", [None, 0, 3, 7])
def test_nothing_goes_without_a_limit_or_below_it(limit: int | None, tmp_path: Path) -> None:
    snapshots.write(tmp_path, 2, 4, 6)
    assert prune(tmp_path, limit, set(), "run-a") == []
    assert steps(tmp_path) == [2, 4, 6]


def test_the_best_stays_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots.write(tmp_path, 2, 4, 6)
    monkeypatch.chdir(tmp_path)
    prune(tmp_path, 2, {Path("checkpoint-2")}, "run-a")
    assert steps(tmp_path) == [2, 6]
    prune(tmp_path, 1, {Path("checkpoint-2")}, "run-a")
    assert steps(tmp_path) == [2, 6]


def test_the_newest_good_one_stays_where_later_ones_are_damaged(tmp_path: Path) -> None:
    made = snapshots.write(tmp_path, 2, 4, 6)
    (made[2] / "optimizer.pt").unlink()
    prune(tmp_path, 1, set(), "run-a")
    assert 4 in steps(tmp_path)
    assert 2 not in steps(tmp_path)


def test_checkpoints_of_other_runs_neither_count_nor_go(tmp_path: Path) -> None:
    snapshots.write(tmp_path, 1, 8, run_id="run-a")
    snapshots.write(tmp_path, 2, 4, run_id="run-b")
    assert prune(tmp_path, 2, set(), "run-b") == []
    prune(tmp_path, 1, set(), "run-b")
    assert steps(tmp_path) == [1, 4, 8]


def test_a_deletion_that_is_cut_short_leaves_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots.write(tmp_path, 2, 4)
    with monkeypatch.context() as crash:
        crash.setattr(shutil, "rmtree", lambda *_, **__: None)
        prune(tmp_path, 1, set(), "run-a")
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
    assert prune(tmp_path, 1, set(), "run-a") == []
    assert "checkpoint-2 could not be deleted: not yours" in caplog.text
