"""What is logged, when, and that the numbers mean what they say."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from trainer import runs

import burnish


def kept_losses(run: Any) -> list[float]:
    return list(runs.logged(run, "loss").values())


def test_loss_is_the_mean_since_the_last_log(tmp_path: Path) -> None:
    each = runs.trainer(tmp_path, max_steps=10)
    each.train()
    third = runs.trainer(tmp_path, max_steps=10, logging_steps=3, logging_first_step=False)
    output = third.train()
    losses = kept_losses(each)
    expected = [sum(losses[0:3]) / 3, sum(losses[3:6]) / 3, sum(losses[6:9]) / 3, losses[9]]
    assert list(runs.logged(third, "loss")) == [3, 6, 9, 10]
    assert kept_losses(third) == pytest.approx(expected, rel=1e-5)
    assert output.training_loss == pytest.approx(sum(losses) / 10, rel=1e-5)


WHEN: dict[str, tuple[dict[str, Any], list[int]]] = {
    "steps": ({"logging_steps": 4}, [1, 4, 8, 10]),
    "share": ({"logging_steps": 0.3}, [1, 3, 6, 9, 10]),
    "without_first": ({"logging_steps": 4, "logging_first_step": False}, [4, 8, 10]),
    "epochs": ({"logging_strategy": "epoch"}, [5, 10]),
    "never": ({"logging_strategy": "no"}, [10]),
    "by_default": ({"logging_steps": None}, list(range(1, 11))),
}


@pytest.mark.parametrize("name", WHEN)
def test_when(name: str, tmp_path: Path) -> None:
    settings, steps = WHEN[name]
    run = runs.trainer(tmp_path, num_train_epochs=2, **settings)
    run.train()
    assert list(runs.logged(run, "loss")) == steps


def test_about_fifty_logs_by_default(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, num_train_epochs=40, logging_steps=None, per_device_train_batch_size=6)
    run.train()
    steps = list(runs.logged(run, "loss"))
    assert run.state.max_steps == 120
    assert steps[0] == 1 and steps[-1] == 120 and 50 <= len(steps) <= 62


def test_keys(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, parts={"eval_dataset": tiny.class_rows(3)}, max_steps=1, eval_strategy="epoch")
    output = run.train()
    training, evaluation, summary = run.state.log_history
    assert set(training) == {"loss", "grad_norm", "learning_rate", "epoch", "step"}
    speed = {"runtime", "samples_per_second", "steps_per_second"}
    assert set(evaluation) == {"eval_loss", "epoch", "step", *(f"eval_{name}" for name in speed)}
    assert set(summary) == {"train_loss", "total_flos", "epoch", "step", *(f"train_{name}" for name in speed)}
    ours = {"train_tokens_per_second", "train_padding_avoided"}
    assert set(output.metrics) == {*summary, *ours} - {"step"}


def test_norm_of_the_gradient_is_that_before_clipping(tmp_path: Path) -> None:
    free = runs.trainer(tmp_path, max_steps=1, max_grad_norm=0.0)
    free.train()
    clipped = runs.trainer(tmp_path, max_steps=1, max_grad_norm=1e-3)
    clipped.train()
    batch = runs.collator()([dict(free.train_dataset[row]) for row in rows_of_first_step(free)])
    model = runs.classifier().train()
    model(**batch).loss.backward()
    expected = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]).item()
    for run in (free, clipped):
        assert runs.logged(run, "grad_norm")[1] == pytest.approx(expected, rel=1e-4)


def rows_of_first_step(run: Any) -> list[int]:
    from burnish.run.plan import plan_for

    return plan_for(run, run.args).rows(0, 0)


def test_counts(tmp_path: Path) -> None:
    """Examples and real tokens, padding left out, as in the state and in the file of the run."""
    rows = tiny.class_rows(18)
    run = runs.trainer(tmp_path, num_train_epochs=2, include_num_input_tokens_seen="non_padding")
    run.train()
    tokens = sum(len(row["input_ids"]) for row in rows)
    assert run.state.num_examples_seen == 36
    assert run.state.num_input_tokens_seen == 2 * tokens
    assert run.state.log_history[-1]["num_input_tokens_seen"] == 2 * tokens
    tables = sum(part.weight.numel() for part in run.model.modules() if isinstance(part, torch.nn.Embedding))
    multiplied = sum(p.numel() for p in run.model.parameters()) - tables
    assert run.state.total_flos == pytest.approx(6.0 * multiplied * 2 * tokens)


def test_file_of_the_run(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, parts={"eval_dataset": tiny.class_rows(3)}, max_steps=2, eval_strategy="epoch")
    run.train()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["log", "log", "evaluation", "summary"]
    assert [line["loss"] for line in lines if line["kind"] == "log"] == pytest.approx(kept_losses(run))


def test_speed_is_in_the_file_and_in_the_result(tmp_path: Path) -> None:
    """Not in the history, which is the same for every run of the same settings."""
    run = runs.trainer(tmp_path, max_steps=3, measure_peak=True)
    metrics = run.train().metrics
    speed = {"examples_per_second", "tokens_per_second", "padding_avoided", "mfu", "peak_memory_gib"}
    logs = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert len(logs) == 4
    assert all(line[name] > 0 for line in logs for name in speed)
    assert not any(name in entry for entry in run.state.log_history for name in speed)
    assert metrics["train_tokens_per_second"] > 0 and 0 < metrics["train_padding_avoided"] < 1


def test_evaluating_and_saving_do_not_slow_the_tokens_down(tmp_path: Path) -> None:
    class Slow(burnish.TrainerCallback):
        def on_evaluate(self, *args: Any, **details: Any) -> None:
            time.sleep(0.3)

        on_save = on_evaluate

    parts = {"eval_dataset": tiny.class_rows(3), "callbacks": [Slow()]}
    rhythm = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    run = runs.trainer(tmp_path, parts=parts, max_steps=4, **rhythm)
    metrics = run.train().metrics
    seconds = run.state.num_input_tokens_seen / metrics["train_tokens_per_second"]
    assert seconds < metrics["train_runtime"] - 4 * 0.6


def test_results_as_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the example scripts end."""
    run = runs.trainer(tmp_path, parts={"eval_dataset": tiny.class_rows(3)}, max_steps=2)
    output = run.train()
    run.save_metrics("train", output.metrics)
    run.save_state()
    metrics = run.evaluate()
    run.log_metrics("eval", metrics)
    run.save_metrics("eval", metrics)
    assert json.loads((tmp_path / "all_results.json").read_text())["eval_loss"] == metrics["eval_loss"]
    assert json.loads((tmp_path / "train_results.json").read_text())["epoch"] == pytest.approx(0.4)
    assert json.loads((tmp_path / "trainer_state.json").read_text())["global_step"] == 2
    assert "***** eval metrics *****" in capsys.readouterr().out


def test_labels_that_are_all_masked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A step without a target counts in no loss, and is said once."""
    rows = tiny.tag_rows(8)
    for row in rows[:4]:
        row["labels"] = [-100] * len(row["labels"])
    import transformers

    parts = {
        "model": tiny.bert("TokenClassification", num_labels=3), "train_dataset": rows,
        "data_collator": transformers.DataCollatorForTokenClassification(tiny.tokenizer()),
    }  # fmt: skip
    run = runs.trainer(tmp_path, parts=parts, max_steps=4, train_sampling_strategy="sequential", learning_rate=0.0)
    output = run.train()
    losses = runs.logged(run, "loss")
    assert list(losses) == [2, 4]
    assert output.training_loss == pytest.approx(losses[2], rel=1e-5)
    assert caplog.text.count("has no target") == 1


def test_a_user_may_log(tmp_path: Path) -> None:
    class Logs(burnish.TrainerCallback):
        trainer: Any = None

        def on_step_end(self, args: Any, state: Any, control: Any, **details: Any) -> None:
            self.trainer.log({"mine": state.global_step * 1.0})

    callback = Logs()
    run = runs.trainer(tmp_path, parts={"callbacks": [callback]}, max_steps=3)
    callback.trainer = run
    run.train()
    assert runs.logged(run, "mine") == {1: 1.0, 2: 2.0, 3: 3.0}


def test_a_loss_may_log(tmp_path: Path) -> None:
    """What it logs while it is tried out before the first step is not of the run."""

    class Own(burnish.Trainer):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
            self.log({"part": 1.0})
            return super().compute_loss(model, inputs, return_outputs, **kwargs)

    run = runs.trainer(tmp_path, Own, max_steps=3, gradient_accumulation_steps=2)
    run.train()
    assert [entry["step"] for entry in run.state.log_history if "part" in entry] == [0, 0, 1, 1, 2]
    run.evaluate(tiny.class_rows(2))
    assert run.state.log_history[-2]["part"] == 1.0
