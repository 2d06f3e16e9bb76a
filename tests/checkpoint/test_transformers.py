"""A trainer of transformers goes on from our checkpoints, and we from theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from checkpoint import snapshots

from burnish.checkpoint import store
from burnish.checkpoint.find import problem_with, resolve
from burnish.checkpoint.restore import read_state, restore_optimizer
from burnish.checkpoint.store import Snapshot
from burnish.checkpoint.weights import load_weights
from burnish.core.progress import TrainerState


def theirs(folder: Path, **changes: Any) -> Any:
    """A trainer of transformers for 4 steps that saves after step 2, without dropout."""
    import transformers

    settings: dict[str, Any] = {"max_steps": 4, "save_steps": 2, "per_device_train_batch_size": 2, "use_cpu": True}
    quiet = {"report_to": "none", "disable_tqdm": True, "logging_steps": 1}
    args = transformers.TrainingArguments(output_dir=str(folder), **{**settings, **quiet, **changes})
    rows = [{**row, "input_ids": row["input_ids"][:4], "attention_mask": [1] * 4} for row in tiny.class_rows(8)]
    return transformers.Trainer(tiny.bert("SequenceClassification"), args, train_dataset=rows)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Any:
    trainer = theirs(tmp_path_factory.mktemp("straight"))
    trainer.train()
    return trainer


def test_their_checkpoint_is_good_and_fills_our_parts(straight: Any) -> None:
    checkpoint = resolve(True, straight.args.output_dir)
    assert checkpoint is not None
    assert problem_with(checkpoint) is None
    assert read_state(checkpoint).global_step == 4
    model = tiny.bert("SequenceClassification")
    load_weights(model, checkpoint)
    assert snapshots.differences(model, straight.model) == []
    own = theirs(Path(straight.args.output_dir))
    own.create_optimizer()
    assert restore_optimizer(checkpoint, own.optimizer) == []
    saved, found = straight.optimizer.state_dict()["state"], own.optimizer.state_dict()["state"]
    assert saved.keys() == found.keys()
    assert all(torch.equal(saved[number]["exp_avg"], found[number]["exp_avg"]) for number in saved)


def test_they_go_on_from_our_checkpoint_as_if_it_were_theirs(straight: Any, tmp_path: Path) -> None:
    middle = Path(straight.args.output_dir) / "checkpoint-2"
    before = theirs(tmp_path)
    before.create_optimizer_and_scheduler(4)
    load_weights(before.model, middle)
    restore_optimizer(middle, before.optimizer, before.lr_scheduler)
    state = TrainerState.load_from_json(middle / "trainer_state.json")
    ours = Snapshot(before.model, state, "run-a", optimizer=before.optimizer, scheduler=before.lr_scheduler)
    checkpoint = store.write(tmp_path / "ours", 2, ours)

    resumed = theirs(tmp_path / "ours")
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert resumed.state.global_step == 4
    assert snapshots.differences(resumed.model, straight.model) == []
