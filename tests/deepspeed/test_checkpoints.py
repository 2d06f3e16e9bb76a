"""Checkpoints of ZeRO: each process writes its part; resumed as they were written, or otherwise."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from distributed.forked import in_processes, values
from trainer import runs
from zero_runs import CPU, stage, trained

import burnish
from burnish.checkpoint import copies, find, verify
from burnish.checkpoint.staging import STAGING

AT = 2


def broken_off(folder: Path, count: int, config: Any, **changes: Any) -> dict[str, Any]:
    return values(in_processes(count, folder, trained, folder, count, config, stop=AT, **changes))[0]


def gone_on(folder: Path, count: int, config: Any, **changes: Any) -> dict[str, Any]:
    return values(in_processes(count, folder, trained, folder, count, config, resume=True, **changes))[0]


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (stage(1), {}),
        (stage(3), {}),
        (stage(2, offload_optimizer=CPU), {}),
        (stage(2), {"bf16": True}),
        (stage(0), {}),
    ],
    ids=["1", "3", "2 offload", "2 bf16", "0"],
)
def test_a_resumed_run_ends_with_the_same_bits(config: Any, changes: Any, tmp_path: Path) -> None:
    straight = values(in_processes(2, tmp_path, trained, tmp_path / "straight", 2, config, **changes))[0]
    broken = broken_off(tmp_path / "run", 2, config, **changes)
    assert broken["step"] == AT
    found = gone_on(tmp_path / "run", 2, config, **changes)
    assert found["step"] == straight["step"] == 4
    assert runs.difference(found["weights"], straight["weights"]) == 0.0
    assert found["loss"] == straight["loss"] and found["learning_rate"] == straight["learning_rate"]


@pytest.mark.parametrize("least", [copies.WORTH_A_COPY, 0], ids=["at once", "sealed behind"])
def test_what_lies_in_the_folder(least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "WORTH_A_COPY", least)
    broken = broken_off(tmp_path, 2, stage(3), bf16=True)
    checkpoint = tmp_path / f"checkpoint-{AT}"
    assert verify.problem_with(checkpoint) is None and find.resolve(True, tmp_path) == checkpoint
    listed = json.loads((checkpoint / "manifest.json").read_text())["files"]
    parts = [name for name in listed if name.startswith("deepspeed/state/") and "optim_states" in name]
    assert len(parts) == 2, "one of each process"
    assert not (checkpoint / "optimizer.pt").exists()
    assert json.loads((checkpoint / "deepspeed" / "topology.json").read_text())["processes"] == 2
    loaded = transformers.AutoModelForTokenClassification.from_pretrained(checkpoint)
    assert runs.difference(runs.weights(loaded), broken["weights"]) == 0.0, "in full, as they are updated"
    assert not list(tmp_path.glob(".staging*"))


def test_a_part_that_is_damaged_is_noticed(tmp_path: Path) -> None:
    broken_off(tmp_path, 2, stage(2))
    part = next((tmp_path / f"checkpoint-{AT}" / "deepspeed" / "state").glob("*optim_states.pt"))
    part.write_bytes(part.read_bytes()[:-10])
    problem = verify.problem_with(tmp_path / f"checkpoint-{AT}")
    assert problem is not None and part.name in problem


OTHERWISE = {
    "fewer processes": (2, stage(2), 1, stage(2)),
    "more processes": (1, stage(3), 2, stage(3)),
    "another stage": (2, stage(1), 2, stage(3)),
    "from DeepSpeed to DDP": (2, stage(3), 2, None),
    "from one process to DeepSpeed": (1, None, 2, stage(3)),
    "from DDP to DeepSpeed": (2, None, 2, stage(1)),
}


@pytest.mark.parametrize("way", OTHERWISE)
def test_going_on_otherwise(way: str, tmp_path: Path) -> None:
    count, config, then, other = OTHERWISE[way]
    straight = trained(tmp_path / "straight", 1, None)
    broken_off(tmp_path / "run", count, config)
    found = gone_on(tmp_path / "run", then, other)
    assert found["step"] == 4
    for name in ("loss", "grad_norm"):
        assert found[name] == pytest.approx(straight[name], rel=2e-5), name
    assert found["learning_rate"] == straight["learning_rate"]
    assert runs.difference(found["weights"], straight["weights"]) < 1e-6
    loaded = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "run" / "final")
    assert runs.difference(runs.weights(loaded), found["weights"]) == 0.0


def test_a_state_that_cannot_be_converted_is_refused_in_words(tmp_path: Path) -> None:
    """SGD with momentum, which DeepSpeed's universal form does not know."""
    changes = {"optim": "sgd", "optim_args": "momentum=0.9"}
    broken_off(tmp_path, 2, None, **changes)
    ended = in_processes(2, tmp_path, trained, tmp_path, 2, stage(2), resume=True, **changes)
    assert ended[0].error == "CheckpointError"
    assert "momentum_buffer" in ended[0].words and "start a new run from its weights" in ended[0].words


@pytest.mark.parametrize(("config", "other"), [(None, stage(0)), (stage(0), None)], ids=["to 0", "from 0"])
def test_stage_0_is_not_converted(config: Any, other: Any, tmp_path: Path) -> None:
    broken_off(tmp_path, 2, config)
    ended = in_processes(2, tmp_path, trained, tmp_path, 2, other, resume=True)
    assert ended[0].error == "CheckpointError" and "stage 0 of ZeRO" in ended[0].words


SCHEDULE = {"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_type": "linear"}}}


@pytest.mark.parametrize("first", [{**stage(1), **SCHEDULE}, stage(3)], ids=["converted", "a new one"])
def test_a_schedule_of_the_configuration_goes_on_at_its_place(first: Any, tmp_path: Path) -> None:
    """Whether the checkpoint knows the place or not."""
    broken_off(tmp_path, 2, first, warmup_steps=2)
    found = gone_on(tmp_path, 2, {**stage(3), **SCHEDULE}, warmup_steps=2)
    rates = list(found["learning_rate"].values())[AT:]
    assert rates == pytest.approx([5e-4, 1e-3], abs=1e-9), "DeepSpeed begins one step before the first"


def test_weights_alone_are_no_state(tmp_path: Path) -> None:
    broken_off(tmp_path, 2, stage(2), save_only_model=True)
    assert not (tmp_path / f"checkpoint-{AT}" / "deepspeed").exists()
    ended = in_processes(2, tmp_path, trained, tmp_path, 2, stage(2), resume=True)
    assert ended[0].error == "CheckpointError"
    assert "model_name_or_path" in ended[0].words


class Exports(burnish.TrainerCallback):
    """Saves the model in the middle of a run, on all processes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.trainer = folder, None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == AT:
            self.trainer.save_model(str(self.folder))


def exported(folder: Path, count: int) -> dict[str, Any]:
    exports = Exports(folder / "midway")

    class Known(burnish.Trainer):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            exports.trainer = self

    return trained(folder, count, stage(3), trainer=Known, callbacks=[exports], stop=AT)


def test_a_model_saved_in_the_middle_of_a_run_is_whole(tmp_path: Path) -> None:
    found = values(in_processes(2, tmp_path, exported, tmp_path, 2))[0]
    loaded = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "midway")
    assert runs.difference(runs.weights(loaded), found["weights"]) == 0.0


def with_a_full_disk(folder: Path, count: int, number: int, process: int) -> dict[str, Any]:
    """On which one process cannot write its part of the second checkpoint."""
    write, written = torch.save, []

    def full(content: Any, place: Any, *given: Any, **named: Any) -> None:
        if f"{STAGING}checkpoint-2" in str(place) and os.environ["RANK"] == str(process):
            written.append(place)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place))
        write(content, place, *given, **named)

    torch.save = full
    trained(folder, count, stage(number), save_strategy="steps", save_steps=1)
    return {"failed": len(written)}


@pytest.mark.parametrize(("number", "process"), [(1, 0), (3, 1)])
def test_a_full_disk_of_one_process_costs_a_checkpoint_and_not_the_run(
    number: int, process: int, tmp_path: Path
) -> None:
    """Processes of DeepSpeed wait for each other when they have written: also for one that could not."""
    found = values(in_processes(2, tmp_path, with_a_full_disk, tmp_path, 2, number, process))
    assert [one["failed"] > 0 for one in found] == [index == process for index in (0, 1)]
    assert sorted(path.name for path in tmp_path.glob("*checkpoint-*")) == [f"checkpoint-{step}" for step in (1, 3, 4)]
    assert all(verify.problem_with(path) is None for path in tmp_path.glob("checkpoint-*"))
