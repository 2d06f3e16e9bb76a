"""A run that was interrupted and goes on is the run that was not: bit for bit, with its history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
import tiny
import transformers
from trainer import runs

import burnish
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
    with pytest.raises(CheckpointError, match=r"batch size.*\| 4 +\| 2"):
        other.train(resume_from_checkpoint=True)


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
