"""A checkpoint is written whole, or nothing of it is left."""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from checkpoint import snapshots

from burnish.checkpoint import manifest, process, staging, store
from burnish.checkpoint.export import export_model
from burnish.checkpoint.verify import problem_with
from burnish.core.errors import CheckpointError
from burnish.core.progress import TrainerState


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """What a full disk is to a writer: any file that grows past `size` bytes fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def ended_process() -> int:
    """The number of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_layout_is_the_familiar_one(tmp_path: Path) -> None:
    model = tiny.llama()
    snapshot = snapshots.snapshot(model=model, processing_class=tiny.tokenizer(), scaler=torch.amp.GradScaler("cpu"))
    checkpoint = store.write(tmp_path, 2, snapshot)
    assert checkpoint == tmp_path / "checkpoint-2"
    names = {path.name for path in checkpoint.iterdir()}
    weights = {"model.safetensors", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    states = {"optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth", "trainer_state.json"}
    assert weights | states | {"burnish.json", "training_args.json", "manifest.json"} <= names
    assert os.listdir(tmp_path) == ["checkpoint-2"]


def test_the_manifest_names_every_other_file(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2)
    content = manifest.read(checkpoint)
    assert set(content["files"]) == {path.name for path in checkpoint.iterdir()} - {"manifest.json"}
    assert (content["step"], content["run_id"], content["world_size"], content["only_model"]) == (2, "run-a", 1, False)
    assert torch.__version__.startswith(content["versions"]["torch"])  # "+cu128" may follow
    assert problem_with(checkpoint) is None


def test_an_only_model_checkpoint_has_no_state_of_the_optimizer(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2, only_model=True)
    names = {path.name for path in checkpoint.iterdir()}
    assert names & {"optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state.pth"} == set()
    assert manifest.read(checkpoint)["only_model"] is True
    assert problem_with(checkpoint) is None


def test_an_older_checkpoint_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    snapshots.write(tmp_path, 2, run_id="run-a")
    (tmp_path / "checkpoint-2" / "left.txt").write_text("of the older one")
    (checkpoint,) = snapshots.write(tmp_path, 2, run_id="run-b")
    assert manifest.read(checkpoint)["run_id"] == "run-b"
    assert not (checkpoint / "left.txt").exists()
    assert os.listdir(tmp_path) == ["checkpoint-2"]


@pytest.mark.parametrize("size", [100, 2000])
def test_a_full_disk_leaves_what_was_there(size: int, tmp_path: Path) -> None:
    snapshots.write(tmp_path, 2)
    before = manifest.read(tmp_path / "checkpoint-2")
    for step in (2, 4):
        with (
            files_no_larger_than(size),
            pytest.raises(CheckpointError, match=f"checkpoint-{step} .*too large") as failure,
        ):
            snapshots.write(tmp_path, step)
        assert failure.value.__cause__ is not None
    assert os.listdir(tmp_path) == ["checkpoint-2"]
    assert manifest.read(tmp_path / "checkpoint-2") == before
    assert problem_with(tmp_path / "checkpoint-2") is None


def test_space_is_looked_for_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 10**6))
    monkeypatch.setattr(staging, "staging_folder", lambda *_: pytest.fail("written to without space"))
    with pytest.raises(CheckpointError, match=r"1 MB free, and \d+ MB are needed"):
        snapshots.write(tmp_path, 2)


@pytest.mark.parametrize("stage", ["seal", "publish"])
@pytest.mark.parametrize("error", [OSError("input/output error"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_a_failure_at_a_late_stage_leaves_what_was_there(
    stage: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots.write(tmp_path, 2, run_id="run-a")

    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(manifest if stage == "seal" else staging, stage, fail)
        with pytest.raises(CheckpointError if isinstance(error, OSError) else KeyboardInterrupt):
            snapshots.write(tmp_path, 2, run_id="run-b")
    assert os.listdir(tmp_path) == ["checkpoint-2"]
    assert manifest.read(tmp_path / "checkpoint-2")["run_id"] == "run-a"


def test_an_output_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(CheckpointError, match="checkpoint-2 could not be written"):
        snapshots.write(tmp_path / "out", 2)


def test_optimizer_state_that_could_run_code_is_not_written(tmp_path: Path) -> None:
    class Odd:
        def state_dict(self) -> dict[str, Any]:
            return {"state": TrainerState(), "param_groups": []}

    with pytest.raises(CheckpointError, match=r"optimizer\.pt .*TrainerState"):
        snapshots.write(tmp_path, 2, optimizer=Odd())
    assert os.listdir(tmp_path) == []


def test_numbers_of_numpy_and_torch_in_logs_and_settings_become_plain(tmp_path: Path) -> None:
    state = TrainerState(global_step=2, log_history=[{"eval_f1": np.float32(0.5), "counts": torch.tensor([1, 2])}])
    (checkpoint,) = snapshots.write(tmp_path, 2, state=state, settings={"dtype": torch.float16, "names": {"b", "a"}})
    assert json.loads((checkpoint / "trainer_state.json").read_text())["log_history"] == [
        {"eval_f1": 0.5, "counts": [1, 2]}
    ]
    settings = json.loads((checkpoint / "training_args.json").read_text())
    assert settings == {"dtype": "torch.float16", "names": ["a", "b"]}


def test_a_random_state_for_each_process(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 2, position={**snapshots.POSITION, "num_processes": 2})
    assert {path.name for path in checkpoint.glob("rng*")} == {"rng_state_0.pth", "rng_state_1.pth"}
    assert manifest.read(checkpoint)["world_size"] == 2


# ---------------------------------------------------------------- what a crash left behind


def test_a_half_staged_checkpoint_of_a_process_that_ended_is_removed(tmp_path: Path) -> None:
    leftover = tmp_path / f".staging-checkpoint-4-{ended_process()}"
    leftover.mkdir()
    (leftover / "model.safetensors").write_text("half")
    snapshots.write(tmp_path, 6)
    assert os.listdir(tmp_path) == ["checkpoint-6"]


def test_drafts_of_a_process_that_ended_are_removed_and_those_of_this_one_stay(tmp_path: Path) -> None:
    for number in (ended_process(), os.getpid()):
        (tmp_path / f".staging-model-{number}").mkdir()
        (tmp_path / f".run.json-{number}").write_text("{")
    snapshots.write(tmp_path, 6)
    left = {f".staging-model-{os.getpid()}", f".run.json-{os.getpid()}", "checkpoint-6"}
    assert set(os.listdir(tmp_path)) == left


def test_a_whole_staged_checkpoint_gets_its_name(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 4)
    checkpoint.rename(tmp_path / f".staging-checkpoint-4-{ended_process()}")
    staging.tidy(tmp_path)
    assert os.listdir(tmp_path) == ["checkpoint-4"]
    assert problem_with(checkpoint) is None


def test_a_checkpoint_moved_aside_comes_back_where_the_new_one_never_came(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 4)
    checkpoint.rename(tmp_path / f".replaced-checkpoint-4-{ended_process()}")
    staging.tidy(tmp_path)
    assert os.listdir(tmp_path) == ["checkpoint-4"]


def test_a_checkpoint_moved_aside_goes_where_the_new_one_came(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path, 4, run_id="old")
    checkpoint.rename(tmp_path / f".replaced-checkpoint-4-{ended_process()}")
    snapshots.write(tmp_path / "elsewhere", 4, run_id="new")[0].rename(
        tmp_path / f".staging-checkpoint-4-{ended_process()}"
    )
    staging.tidy(tmp_path)
    assert manifest.read(checkpoint)["run_id"] == "new"
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-4", "elsewhere"]


def test_a_later_process_of_the_same_number_is_another(tmp_path: Path) -> None:
    this = process.this_process()
    if this["began"] is None:
        pytest.skip("this system does not say when a process began")
    label = process.label().replace(f"@{this['began']}@", "@1@")
    assert process.labelled(f".staging-checkpoint-4-{process.label()}") == this
    for name in (f".staging-checkpoint-4-{label}", f".trash-checkpoint-4-{label}", f".staging-conversion-{label}"):
        (tmp_path / name).mkdir()
    staging.tidy(tmp_path)
    assert os.listdir(tmp_path) == []


def test_another_machine_is_at_work_as_long_as_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "node-2.gpu-@1")
    label = process.label()
    monkeypatch.undo()
    assert (process.labelled(f"-{label}") or {})["host"] == "node-2.gpu-@1"
    (tmp_path / f".staging-checkpoint-4-{label}").mkdir()
    staging.tidy(tmp_path)
    assert os.listdir(tmp_path) == [f".staging-checkpoint-4-{label}"]
    monkeypatch.setattr(staging, "SIGN_OF_LIFE", -1)
    staging.tidy(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_trial_and_a_conversion_are_apart(tmp_path: Path) -> None:
    (staging.conversion_folder(tmp_path) / "state").write_text("")
    staging.trial_folder(tmp_path)
    assert len(os.listdir(tmp_path)) == 2 and len(list(tmp_path.rglob("state"))) == 1


def test_what_another_living_process_stages_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / f".staging-checkpoint-4-{os.getppid()}"
    folder.mkdir()
    staging.tidy(tmp_path)
    assert folder.is_dir()


# ---------------------------------------------------------------- the model that a run leaves behind


def test_the_exported_folder_is_complete(tmp_path: Path) -> None:
    import transformers

    model = tiny.bert("SequenceClassification")
    export_model(model, tmp_path, processing_class=tiny.tokenizer(), settings={"seed": 1})
    found = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert snapshots.differences(model, found) == []
    assert transformers.AutoTokenizer.from_pretrained(tmp_path)("w5 w7")["input_ids"] == [5, 7]
    assert json.loads((tmp_path / "training_args.json").read_text()) == {"seed": 1}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_an_export_removes_the_weights_of_the_model_before_and_nothing_else(tmp_path: Path) -> None:
    tiny.llama().save_pretrained(tmp_path, max_shard_size="20KB")
    (tmp_path / "results.json").write_text("{}")
    export_model(tiny.llama(), tmp_path)
    assert [path.name for path in tmp_path.glob("model*")] == ["model.safetensors"]
    assert (tmp_path / "results.json").exists()


def test_a_failed_export_leaves_the_model_that_was_there(tmp_path: Path) -> None:
    export_model(snapshots.plain(), tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    with files_no_larger_than(100), pytest.raises(CheckpointError, match="could not be written"):
        export_model(snapshots.plain(1), tmp_path)
    assert os.listdir(tmp_path) == ["model.safetensors"]
    assert (tmp_path / "model.safetensors").read_bytes() == before
