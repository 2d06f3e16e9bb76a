"""A run that was interrupted and goes on is the run that was not: bit for bit, with its history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
import tiny
import transformers
from trainer import runs

import burnish
from burnish.checkpoint import manifest
from burnish.checkpoint.run_id import run_of
from burnish.core.errors import CheckpointError

STEPS, STOP = 8, 3  # 18 rows in batches of 4: five steps a pass

RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "at_the_end_of_a_pass": {"save_steps": 5},
    "sgd_with_cosine": {"optim": "sgd", "lr_scheduler_type": "cosine", "warmup_steps": 0.4},
    "accumulation": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2},
    "group_by_length": {"train_sampling_strategy": "group_by_length"},
    "packing": {"packing": True, "packing_length": 30, "per_device_train_batch_size": 2},
    "evaluation_between": {"eval_strategy": "steps", "eval_steps": 2},
    "logged_seldom": {"logging_steps": 5, "logging_first_step": False},
    "bf16": {"bf16": True},
    "fp16": {"fp16": True},
    "by_metric": {
        "eval_strategy": "steps", "eval_steps": 1, "lr_scheduler_type": "reduce_lr_on_plateau",
        "metric_for_best_model": "loss", "lr_scheduler_kwargs": {"patience": 0, "factor": 0.5},
    },
    "neftune": {"neftune_noise_alpha": 5.0},
    "skipping": {"nonfinite_policy": "skip"},
    "counted_tokens": {"include_num_input_tokens_seen": "all"},
    "workers": {"dataloader_num_workers": 2},
    "persistent_workers": {"dataloader_num_workers": 2, "dataloader_persistent_workers": True},
}  # fmt: skip
SLOW = ("workers", "persistent_workers")


class Stop(burnish.TrainerCallback):
    """Ends the run at a step, after it was saved."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **details: Any) -> None:
        control.should_training_stop |= state.global_step == self.step


def run(folder: Path, callbacks: list[Any] | None = None, **settings: Any) -> Any:
    """With dropout, so that randomness matters."""
    parts = {
        "model": runs.classifier(hidden_dropout_prob=0.2),
        "eval_dataset": tiny.class_rows(5),
        "callbacks": callbacks or [],
    }
    usual = {"max_steps": STEPS, "save_strategy": "steps", "save_steps": STOP}
    return runs.trainer(folder, parts=parts, **{**usual, **settings})


def assert_same(one: Any, other: Any) -> None:
    assert runs.difference(one.model, other.model) == 0.0
    assert runs.without_times(one.state.log_history) == runs.without_times(other.state.log_history)
    one_state, other_state = (dict(vars(each.state)) for each in (one, other))
    for state in (one_state, other_state):
        for name in ("log_history", "best_model_checkpoint", "stateful_callbacks"):
            del state[name]
    assert one_state == other_state


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in RUNS])
def test_same_run(name: str, tmp_path: Path) -> None:
    settings = RUNS[name]
    stop = settings.get("save_steps", STOP)
    straight = run(tmp_path / "straight", **settings)
    straight.train()
    run(tmp_path / "broken", [Stop(stop)], **settings).train()
    resumed = run(tmp_path / "broken", **settings)
    output = resumed.train(resume_from_checkpoint=str(tmp_path / "broken" / f"checkpoint-{stop}"))
    assert output.global_step == STEPS
    assert_same(straight, resumed)


@pytest.mark.parametrize("word", [True, "True", "last", "auto"])
def test_newest_checkpoint(word: Any, tmp_path: Path) -> None:
    run(tmp_path, [Stop(7)]).train()
    resumed = run(tmp_path)
    begun: list[int] = []

    class Begun(burnish.TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **details: Any) -> None:
            begun.append(state.global_step)

    resumed.add_callback(Begun())
    resumed.train(resume_from_checkpoint=word)
    assert begun == [6]


def test_resume_as_a_setting(tmp_path: Path) -> None:
    run(tmp_path, [Stop(4)]).train()
    resumed = run(tmp_path, resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    resumed.train()
    straight = run(tmp_path / "straight")
    straight.train()
    assert_same(straight, resumed)


def test_auto_without_a_checkpoint_starts(tmp_path: Path) -> None:
    first = run(tmp_path, max_steps=1, save_strategy="no")
    first.train(resume_from_checkpoint="auto")
    assert first.state.global_step == 1
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        first.train(resume_from_checkpoint=True)
    with pytest.raises(CheckpointError, match="does not exist"):
        first.train(resume_from_checkpoint=str(tmp_path / "checkpoint-9"))


def test_early_stopping_goes_on_counting(tmp_path: Path) -> None:
    """Patience that was half used up stays so."""

    def scripted(folder: Path) -> Any:
        scores = {1: 0.9, 2: 0.5, 3: 0.4, 4: 0.3, 5: 0.2}
        made = run(
            folder, [burnish.EarlyStoppingCallback(early_stopping_patience=3)], eval_strategy="steps", eval_steps=1,
            save_steps=1, metric_for_best_model="score", greater_is_better=True, load_best_model_at_end=True,
        )  # fmt: skip
        made.compute_metrics = lambda prediction: {"score": scores[made.state.global_step]}
        return made

    straight = scripted(tmp_path / "straight")
    straight.train()
    assert straight.state.global_step == 4
    broken = scripted(tmp_path / "broken")
    broken.add_callback(Stop(3))
    broken.train()
    resumed = scripted(tmp_path / "broken")
    resumed.train(resume_from_checkpoint=True)
    assert_same(straight, resumed)
    assert Path(resumed.state.best_model_checkpoint).name == "checkpoint-1"


def test_resuming_with_model_init(tmp_path: Path) -> None:
    """The weights are those of the checkpoint, not those of `model_init`."""
    config = tiny.bert_config(num_hidden_layers=1)

    def made(callbacks: list[Any]) -> Any:
        parts = {"model_init": lambda: transformers.BertForSequenceClassification(config), "callbacks": callbacks}
        return runs.trainer(tmp_path, parts=parts, max_steps=6, save_strategy="steps", save_steps=3)

    straight = made([])
    straight.train()
    resumed = made([])
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert_same(straight, resumed)


def test_a_longer_run(tmp_path: Path) -> None:
    """A finished run says that nothing is left; with more steps it goes on."""
    run(tmp_path).train()
    again = run(tmp_path)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == STEPS
    longer = run(tmp_path, max_steps=10)
    longer.train(resume_from_checkpoint=True)
    assert longer.state.global_step == 10
    assert longer.state.num_examples_seen == 2 * 18


@pytest.mark.parametrize(
    "settings",
    [{"train_sampling_strategy": "group_by_length"}, {"dataloader_drop_last": True}, {"packing": True}],
    ids=str,
)
def test_steps_of_another_size_are_refused_where_the_order_depends_on_it(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    run(tmp_path, [Stop(3)], **settings).train()
    other = run(tmp_path, per_device_train_batch_size=2, **settings)
    with pytest.raises(
        CheckpointError, match=r"(?s)batch size.*\| 4 +\| 2.*gradient_accumulation_steps x processes stays 4"
    ):
        other.train(resume_from_checkpoint=True)
    same = run(tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=2, **settings)
    assert same.train(resume_from_checkpoint=True).global_step == STEPS


class Rows(burnish.TrainerCallback):
    """Writes down the rows of every step, and its learning rate."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = [[]]
        self.rates: list[float] = []

    def watch(self, trainer: Any) -> Any:
        compute = trainer.data_collator

        def collate(examples: list[Any]) -> Any:
            self.steps[-1] += [example["row"] for example in examples]
            return compute([{k: v for k, v in example.items() if k != "row"} for example in examples])

        trainer.data_collator = collate
        return trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **details: Any) -> None:
        self.steps = [[]]

    def on_step_end(self, args: Any, state: Any, control: Any, **details: Any) -> None:
        self.steps.append([])

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **details: Any) -> None:
        self.rates += [logs["learning_rate"]] if "learning_rate" in logs else []


def in_parts(folder: Path, *parts: tuple[int, int], **settings: Any) -> tuple[list[list[int]], Any, list[float]]:
    """Rows of each step, of a run of three passes that goes on with another size of batch after so many steps: (size,
    last step) each."""
    steps: list[list[int]] = []
    rates: list[float] = []
    for size, last in parts:
        rows = Rows()
        usual = {"max_steps": -1, "num_train_epochs": 3, "save_steps": 1, "remove_unused_columns": False}
        made = run(folder, [Stop(last), rows], **{**usual, **settings, "per_device_train_batch_size": size})
        made.train_dataset = [{**row, "row": number} for number, row in enumerate(tiny.class_rows(18))]
        rows.watch(made).train(resume_from_checkpoint="auto")
        steps += [sorted(step) for step in rows.steps if step]
        rates += rows.rates
    return steps, made, rates


@pytest.mark.parametrize("sampling", ["random", "sequential"])
@pytest.mark.parametrize(
    "parts",
    [
        [(4, 2), (8, 99)], [(2, 3), (4, 99)], [(4, 3), (2, 99)], [(4, 5), (8, 99)], [(4, 7), (16, 99)],
        [(2, 3), (8, 5), (3, 99)], [(2, 3), (8, 4), (8, 99)], [(4, 2), (30, 99)], [(4, 4), (16, 99)],
    ],
    ids=str,
)  # fmt: skip
def test_steps_of_another_size_take_every_row_once_in_a_pass(
    parts: list[tuple[int, int]], sampling: str, tmp_path: Path
) -> None:
    settings = {"train_sampling_strategy": sampling, "lr_scheduler_type": "linear"}
    steps, end, rates = in_parts(tmp_path / "changed", *parts, **settings)
    plain, _, _ = in_parts(tmp_path / "plain", (18, 99), **settings)
    seen = [row for step in steps for row in step]
    assert [sorted(seen[i : i + 18]) for i in (0, 18, 36)] == [list(range(18))] * 3
    assert [set(seen[i : i + 18]) for i in (0, 18, 36)] == [set(step) for step in plain]
    assert end.state.global_step == end.state.max_steps == len(steps)
    assert (end.state.epoch, end.state.num_examples_seen) == (3.0, 54)
    last = parts[-2][1]
    expected = [1e-3 * (1 - step / len(steps)) for step in range(last, len(steps))]
    assert rates[last:] == pytest.approx(expected)


def test_steps_after_a_change_have_the_new_size(tmp_path: Path) -> None:
    steps, *_ = in_parts(tmp_path, (2, 3), (4, 99), train_sampling_strategy="sequential")
    assert steps[:7] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9, 10, 11], [12, 13, 14, 15], [16, 17]]
    assert [len(step) for step in steps[7:]] == [4, 4, 4, 4, 2] * 2


@pytest.mark.parametrize("change", ["other rows", "another order", "another tokenizer"])
def test_other_rows_of_the_same_number_are_refused(change: str, tmp_path: Path) -> None:
    run(tmp_path, [Stop(3)]).train()
    rows = tiny.class_rows(18)
    changed = {
        "other rows": tiny.class_rows(36)[18:],
        "another order": rows[::-1],
        "another tokenizer": [{**row, "input_ids": [token ^ 1 for token in row["input_ids"]]} for row in rows],
    }[change]
    other = run(tmp_path)
    other.train_dataset = changed
    with pytest.raises(CheckpointError, match=r"content of train_dataset \(fingerprint\) *\| \w{12} *\| \w{12}"):
        other.train(resume_from_checkpoint=True)
    other.train_dataset = datasets.Dataset.from_list([{"note": "not for the model", **row} for row in rows])
    other.train(resume_from_checkpoint=True)


def test_resuming_after_epochs(tmp_path: Path) -> None:
    """Saved by pass, as `num_train_epochs` counts."""
    settings = {"max_steps": -1, "num_train_epochs": 3, "save_strategy": "epoch", "eval_strategy": "epoch"}
    straight = run(tmp_path / "straight", **settings)
    straight.train()
    run(tmp_path / "broken", [Stop(5)], **settings).train()
    resumed = run(tmp_path / "broken", **settings)
    resumed.train(resume_from_checkpoint=True)
    assert_same(straight, resumed)


CHANGES: dict[str, dict[str, Any]] = {
    "learning rate": {"learning_rate": 5e-3},
    "schedule": {"lr_scheduler_type": "cosine"},
    "warmup": {"warmup_steps": 6},
    "more steps": {"max_steps": 12},
    "more passes": {"max_steps": -1, "num_train_epochs": 4},
    "all": {"learning_rate": 5e-3, "lr_scheduler_type": "cosine", "warmup_steps": 0.5, "max_steps": 12},
    "weight decay": {"weight_decay": 0.5},
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_rate_after_a_change_is_that_of_a_fresh_run(name: str, tmp_path: Path) -> None:
    fresh = run(tmp_path / "fresh", **CHANGES[name])
    fresh.train()
    run(tmp_path / "changed", [Stop(3)]).train()
    changed = run(tmp_path / "changed", **CHANGES[name])
    changed.train(resume_from_checkpoint=True)
    expected, found = (runs.logged(one, "learning_rate") for one in (fresh, changed))
    assert {step: rate for step, rate in found.items() if step > 3} == {s: r for s, r in expected.items() if s > 3}
    assert changed.optimizer.param_groups[0]["weight_decay"] == fresh.optimizer.param_groups[0]["weight_decay"]
    assert changed.state.global_step == fresh.state.global_step


class Counted:
    """A million rows, of which it counts those that are read."""

    def __init__(self) -> None:
        self.read: list[int] = []
        self.rows = tiny.class_rows(16)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> Any:
        self.read.append(number)
        return self.rows[number % 16]


def test_a_resume_far_in_a_pass_reads_no_more_than_one_near_its_begin(tmp_path: Path) -> None:
    read: dict[int, int] = {}
    for at in (10, 100_000):
        folder = tmp_path / str(at)

        def million(folder: Path, at: int) -> Any:
            made = run(folder, max_steps=at + 2, save_steps=at + 1, logging_steps=1_000_000)
            made.train_dataset = Counted()
            return made

        first = million(folder, 0)
        first.train()
        checkpoint = folder / "checkpoint-1"
        moved = checkpoint.rename(folder / f"checkpoint-{at}")
        for name, changes in (("trainer_state.json", {"global_step": at}), ("burnish.json", {})):
            content = json.loads((moved / name).read_text())
            content |= changes
            if name == "burnish.json":
                content["state"]["steps_in_pass"] = at
            (moved / name).write_text(json.dumps(content))
        (moved / "manifest.json").unlink()
        manifest.seal(moved, step=at, run_id=run_of(folder / "checkpoint-2"), world_size=1, only_model=False)
        resumed = million(folder, at)
        resumed.train(resume_from_checkpoint=str(moved))
        assert resumed.state.global_step == at + 2
        read[at] = len(resumed.train_dataset.read)
    assert read[100_000] == read[10]


def test_a_checkpoint_without_an_optimizer_is_said_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, [Stop(3)], save_only_model=True).train()
    resumed = run(tmp_path)
    resumed.train(resume_from_checkpoint=True)
    assert "has no state of the optimizer" in caplog.text and resumed.state.global_step == STEPS


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    run(tmp_path, [Stop(3)]).train()
    other = run(tmp_path)
    other.model = other.model_wrapped = runs.classifier(hidden_size=64)
    with pytest.raises(CheckpointError, match=r"of another shape: .*32.* in the file.*64.* in the model"):
        other.train(resume_from_checkpoint=True)


def test_a_finished_run_reports_what_it_came_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = run(tmp_path, eval_strategy="steps", eval_steps=4, load_best_model_at_end=True, save_steps=4)
    output = whole.train()
    again = run(tmp_path, eval_strategy="steps", eval_steps=4, load_best_model_at_end=True, save_steps=4)
    found = again.train(resume_from_checkpoint=True)
    assert "Nothing is left to train" in caplog.text and "is at step 8, and this run has 8" in caplog.text
    assert (found.global_step, found.training_loss) == (output.global_step, output.training_loss)
    assert found.metrics["train_loss"] == output.metrics["train_loss"]
    assert (again.state.best_metric, again.state.best_global_step) == (
        whole.state.best_metric,
        whole.state.best_global_step,
    )
    assert runs.difference(whole.model, again.model) == 0.0
