"""The newest checkpoint that is whole and of this run is found; the others are passed over aloud."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint import snapshots

from burnish.checkpoint.find import checkpoints, newest_good, problem_with, resolve
from burnish.checkpoint.run_id import UNNAMED, current_run, new_run_id, run_of
from burnish.checkpoint.run_manifest import RunManifest
from burnish.core.errors import CheckpointError

FILES = [
    "model.safetensors",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state.pth",
    "trainer_state.json",
    "burnish.json",
    "training_args.json",
    "manifest.json",
]


def begin_run(folder: Path, run_id: str) -> None:
    RunManifest(run_id=run_id).write(folder)


def flip(path: Path) -> None:
    """Changes one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def test_checkpoints_come_by_step(tmp_path: Path) -> None:
    for name in ("checkpoint-10", "checkpoint-9", "checkpoint-best", "checkpoint-3-old", "runs"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoint-11").write_text("no folder")
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-9", "checkpoint-10"]
    assert checkpoints(tmp_path / "nowhere") == []


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [flip, cut, Path.unlink], ids=["flipped", "cut", "missing"])
def test_damage_of_any_file_is_noticed_and_named(name: str, damage: Any, tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2)
    damage(checkpoint / name)
    problem = problem_with(checkpoint)
    assert problem is not None
    assert name in problem


def test_a_listing_looks_at_sizes_only(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2)
    flip(checkpoint / "optimizer.pt")
    assert problem_with(checkpoint, checksums=False) is None
    cut(checkpoint / "optimizer.pt")
    assert "optimizer.pt has" in str(problem_with(checkpoint, checksums=False))


def test_a_file_that_was_added_later_does_no_harm(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2)
    (checkpoint / "notes.txt").write_text("mine")
    assert problem_with(checkpoint) is None


def test_a_later_format_is_not_guessed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from burnish.checkpoint import layout

    with monkeypatch.context() as later:
        later.setattr(layout, "FORMAT_VERSION", 99)
        (checkpoint,) = snapshots.write(tmp_path, 2)
    assert "format 99" in str(problem_with(checkpoint))


# ---------------------------------------------------------------- checkpoints of transformers


def test_a_checkpoint_without_manifest_of_transformers_is_good(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2)
    assert problem_with(snapshots.without_manifest(checkpoint)) is None
    assert run_of(checkpoint) == UNNAMED


@pytest.mark.parametrize("name", ["trainer_state.json", "model.safetensors"])
@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-20]), Path.unlink])
def test_a_half_written_checkpoint_of_transformers_is_not(name: str, damage: Any, tmp_path: Path) -> None:
    checkpoint = snapshots.without_manifest(snapshots.write(tmp_path, 2)[0])
    damage(checkpoint / name)
    assert name in str(problem_with(checkpoint))


def test_a_cut_optimizer_of_transformers_is_noticed(tmp_path: Path) -> None:
    checkpoint = snapshots.without_manifest(snapshots.write(tmp_path, 2)[0])
    path = checkpoint / "optimizer.pt"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "optimizer.pt" in str(problem_with(checkpoint))


def test_a_missing_shard_of_transformers_is_noticed(tmp_path: Path) -> None:
    checkpoint = snapshots.without_manifest(snapshots.write(tmp_path, 2)[0])
    (checkpoint / "model.safetensors").rename(checkpoint / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model-00002-of-00002.safetensors is missing" in str(problem_with(checkpoint))


def test_old_weights_of_torch_are_good(tmp_path: Path) -> None:
    checkpoint = snapshots.without_manifest(snapshots.write(tmp_path, 2)[0])
    (checkpoint / "model.safetensors").unlink()
    torch.save(snapshots.plain().state_dict(), checkpoint / "pytorch_model.bin")
    assert problem_with(checkpoint) is None


# ---------------------------------------------------------------- which one


@pytest.mark.parametrize("leave", ["all but trainer_state", "model only"])
def test_a_damaged_newest_one_is_passed_over_and_named(
    leave: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    snapshots.write(tmp_path, 2, 4)
    for path in (tmp_path / "checkpoint-4").iterdir():
        if path.name == "trainer_state.json" or (leave == "model only" and not path.name.startswith("model")):
            path.unlink()
    assert newest_good(tmp_path, "run-a") == tmp_path / "checkpoint-2"
    assert "checkpoint-4 is passed over" in caplog.text
    assert "trainer_state.json" in caplog.text


def test_only_the_checkpoint_that_is_resumed_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from burnish.checkpoint import files

    snapshots.write(tmp_path, 2, 4)
    read: list[Path] = []
    plain = files.sha256
    monkeypatch.setattr(files, "sha256", lambda path: read.append(path) or plain(path))
    assert newest_good(tmp_path, "run-a") == tmp_path / "checkpoint-4"
    assert {path.parent.name for path in read} == {"checkpoint-4"}


def test_a_checkpoint_of_another_run_is_passed_over_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    snapshots.write(tmp_path, 6, run_id="run-a")
    snapshots.write(tmp_path, 2, run_id="run-b")
    begin_run(tmp_path, "run-b")
    assert resolve(True, tmp_path) == tmp_path / "checkpoint-2"
    assert "checkpoint-6 is passed over: it is of another run" in caplog.text


def test_a_run_that_goes_on_from_transformers_finds_what_came_before(tmp_path: Path) -> None:
    checkpoint = snapshots.without_manifest(snapshots.write(tmp_path, 2)[0])
    assert resolve(True, tmp_path) == checkpoint
    begin_run(tmp_path, run_of(checkpoint))
    assert resolve(True, tmp_path) == checkpoint
    snapshots.write(tmp_path, 4, run_id=run_of(checkpoint))
    assert resolve(True, tmp_path) == tmp_path / "checkpoint-4"


@pytest.mark.parametrize("resume", [True, "True", "true", "last", "auto"])
def test_words_for_the_newest_one(resume: Any, tmp_path: Path) -> None:
    snapshots.write(tmp_path, 2, 4)
    assert resolve(resume, tmp_path) == tmp_path / "checkpoint-4"


@pytest.mark.parametrize("resume", [None, False, "False", "false", ""])
def test_words_for_a_start_from_the_beginning(resume: Any, tmp_path: Path) -> None:
    snapshots.write(tmp_path, 2)
    assert resolve(resume, tmp_path) is None


def test_auto_starts_from_the_beginning_where_there_is_none(tmp_path: Path) -> None:
    assert resolve("auto", tmp_path) is None
    assert resolve("auto", tmp_path / "nowhere") is None


def test_true_says_what_else_can_be_done(tmp_path: Path) -> None:
    snapshots.write(tmp_path, 6, run_id="run-a")
    begin_run(tmp_path, "run-b")
    with pytest.raises(CheckpointError, match="checkpoint-6") as refusal:
        resolve(True, tmp_path)
    assert "auto" in str(refusal.value) and "by its path" in str(refusal.value)


def test_a_path_is_taken_whatever_run_it_is_of(tmp_path: Path) -> None:
    snapshots.write(tmp_path, 6, run_id="run-a")
    begin_run(tmp_path, "run-b")
    assert resolve(str(tmp_path / "checkpoint-6"), tmp_path / "elsewhere") == tmp_path / "checkpoint-6"


def test_a_path_that_does_not_exist_is_named_with_those_that_do(tmp_path: Path) -> None:
    snapshots.write(tmp_path, 2)
    with pytest.raises(CheckpointError, match=r"no-such-checkpoint.* does not exist.*checkpoint-2"):
        resolve(tmp_path / "no-such-checkpoint", tmp_path)


def test_a_path_that_is_damaged_is_refused(tmp_path: Path) -> None:
    snapshots.write(tmp_path, 2, 4)
    flip(tmp_path / "checkpoint-4" / "optimizer.pt")
    with pytest.raises(CheckpointError, match=r"optimizer\.pt.*checkpoint-2"):
        resolve(tmp_path / "checkpoint-4", tmp_path)


def test_the_folder_of_a_run_is_no_checkpoint_but_its_checkpoints_are_named(tmp_path: Path) -> None:
    snapshots.write(tmp_path / "run", 2)
    with pytest.raises(CheckpointError, match=r"run: checkpoint-2"):
        resolve(tmp_path / "run", tmp_path / "out")


# ---------------------------------------------------------------- the run of a folder


def test_a_folder_remembers_its_latest_run(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert current_run(folder) is None
    begin_run(folder, "run-a")
    begin_run(folder, "run-b")
    assert current_run(folder) == "run-b"
    assert [path.name for path in folder.iterdir()] == ["run.json"]
    (folder / "run.json").write_text("torn")
    assert current_run(folder) is None


def test_runs_have_names_of_their_own_and_draw_nothing() -> None:
    before = torch.get_rng_state()
    assert new_run_id() != new_run_id()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_checkpoint_that_was_copied_elsewhere_is_still_good(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2)
    copied = shutil.copytree(checkpoint, tmp_path / "kept" / "best")
    assert problem_with(copied) is None
    assert run_of(copied) == "run-a"


def test_a_number_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"resume_from_checkpoint=2: it is the path of a checkpoint"):
        resolve(2, tmp_path)  # type: ignore[arg-type]
