"""Checkpoints of several processes: written once, resumed on the same number or another."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import datasets
import pytest
import tiny
from distributed.forked import in_processes, values
from trainer import runs

import burnish

ROWS = 20


class Stop(burnish.TrainerCallback):
    """Ends a run early, with a checkpoint."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.at:
            control.should_training_stop = control.should_save = True


def trained(folder: Path, batch: int, stop: int | None = None, resume: Any = None, **changes: Any) -> dict[str, Any]:
    """Two passes over 20 rows."""
    model = runs.classifier(hidden_dropout_prob=changes.pop("dropout", 0.0))
    rows = tiny.class_rows(ROWS)
    dataset = datasets.Dataset.from_list(rows).to_iterable_dataset() if changes.pop("stream", False) else rows
    parts = {"model": model, "train_dataset": dataset, "callbacks": [Stop(stop)] if stop else []}
    settings = {"num_train_epochs": 2, "per_device_train_batch_size": batch, "learning_rate": 1e-3, **changes}
    run = runs.trainer(folder, parts=parts, **settings)
    run.train(resume_from_checkpoint=resume)
    return {
        "weights": runs.weights(model),
        "steps": run.state.global_step,
        "examples": run.state.num_examples_seen,
        "loss": runs.logged(run, "loss"),
        "names": sorted(path.name for path in folder.glob("checkpoint-*")),
    }


def together(count: int, folder: Path, *given: Any, **named: Any) -> list[dict[str, Any]]:
    return values(in_processes(count, folder, trained, folder, *given, **named))


@pytest.mark.parametrize("saving", [{"save_async": True}, {"save_async": False}])
def test_a_resumed_run_ends_with_the_same_bits(saving: dict[str, Any], tmp_path: Path) -> None:
    """With dropout, and stopped within a pass."""
    straight = together(2, tmp_path / "straight", 4, dropout=0.2, **saving)
    broken = together(2, tmp_path / "broken", 4, 4, dropout=0.2, **saving)
    assert [one["steps"] for one in broken] == [4, 4] and broken[0]["names"] == ["checkpoint-4"]
    resumed = together(2, tmp_path / "broken", 4, resume=True, dropout=0.2, **saving)
    for one in resumed:
        assert (one["steps"], one["examples"]) == (6, 2 * ROWS)
        assert runs.difference(one["weights"], straight[0]["weights"]) == 0.0
        assert one["loss"] == straight[0]["loss"]


@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1), (2, 4)])
def test_going_on_with_another_number_of_processes(first: int, then: int, tmp_path: Path) -> None:
    """In steps of 8 on all of them."""
    straight = trained(tmp_path / "straight", 8)
    together(first, tmp_path / "run", 8 // first, 2)
    for one in together(then, tmp_path / "run", 8 // then, resume=True):
        assert (one["steps"], one["examples"]) == (straight["steps"], 2 * ROWS)
        assert runs.difference(one["weights"], straight["weights"]) < 1e-5


@pytest.mark.parametrize(("first", "then"), [(2, 2), (1, 2), (2, 1)])
def test_going_on_in_a_stream(first: int, then: int, tmp_path: Path) -> None:
    stream = {"stream": True, "max_steps": 5}
    straight = trained(tmp_path / "straight", 8, **stream)
    together(first, tmp_path / "run", 8 // first, 2, **stream)
    for one in together(then, tmp_path / "run", 8 // then, resume=True, **stream):
        assert (one["steps"], one["examples"]) == (5, straight["examples"])
        assert runs.difference(one["weights"], straight["weights"]) < 1e-5


def test_every_row_once_where_steps_become_larger(tmp_path: Path) -> None:
    """One process in steps of 4, then two in steps of 8: the pass goes on where it was."""
    together(1, tmp_path / "run", 4, 2)
    for one in together(2, tmp_path / "run", 4, resume=True):
        assert one["examples"] == 2 * ROWS and one["steps"] == 2 + 2 + 3


def test_what_lies_in_the_folder(tmp_path: Path) -> None:
    together(2, tmp_path / "run", 4, save_strategy="steps", save_steps=3, logging_steps=1)
    checkpoint = tmp_path / "run" / "checkpoint-6"
    names = {path.name for path in checkpoint.iterdir()}
    assert {"rng_state_0.pth", "rng_state_1.pth", "model.safetensors", "optimizer.pt"} <= names
    assert json.loads((checkpoint / "manifest.json").read_text())["world_size"] == 2
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "log"] == list(range(1, 7))
    assert not list((tmp_path / "run").glob(".staging*"))


def saved_badly(folder: Path) -> Any:
    """The folder of the second checkpoint cannot be written by the first process."""
    from burnish.checkpoint import store

    write = store.write

    def refuse(output_dir: Any, step: int, snapshot: Any) -> Any:
        assert os.environ["RANK"] == "0", "the others write nothing"
        if step == 2:
            with store.told_as(Path(output_dir) / "checkpoint-2"):
                raise OSError("no space left on device")
        return write(output_dir, step, snapshot)

    store.write = refuse
    parts = {"train_dataset": tiny.class_rows(ROWS)}
    run = runs.trainer(folder, parts=parts, max_steps=3, save_strategy="steps", save_steps=1)
    heard: list[int] = []
    run.add_callback(_Saves(heard))
    run.train()
    return heard


class _Saves(burnish.TrainerCallback):
    def __init__(self, heard: list[int]) -> None:
        self.heard = heard

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.heard.append(state.global_step)


def test_all_processes_know_which_checkpoints_were_written(tmp_path: Path) -> None:
    assert values(in_processes(2, tmp_path, saved_badly, tmp_path / "run")) == [[1, 3], [1, 3]]


def exported(folder: Path) -> Any:
    run = runs.trainer(folder, max_steps=1, per_device_train_batch_size=2)
    run.train()
    run.save_model()
    run.save_metrics("train", {"train_loss": 1.0})
    run.save_state()
    return run.is_world_process_zero(), run.is_local_process_zero(), run.args.should_save, run.args.should_log


def test_the_first_process_writes_the_model(tmp_path: Path) -> None:
    assert values(in_processes(2, tmp_path, exported, tmp_path / "run")) == [(True,) * 4, (False,) * 4]
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_a_checkpoint_that_is_not_there_is_missed_by_all(tmp_path: Path) -> None:
    ended = in_processes(2, tmp_path, trained, tmp_path / "run", 4, resume=str(tmp_path / "run" / "checkpoint-9"))
    assert [one.error for one in ended] == ["CheckpointError", "ProcessError"]
    assert all("checkpoint-9" in one.words for one in ended)
