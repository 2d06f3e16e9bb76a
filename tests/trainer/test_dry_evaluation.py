"""The metric that decides which model is best is looked for before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
from trainer import runs

from burnish import EarlyStoppingCallback, Trainer, TrainerCallback
from burnish.core.errors import SettingError

ROWS = tiny.class_rows(6)


class Heard(TrainerCallback):
    """What callbacks are told before the first step."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def on_prediction_step(self, *parts: Any, **more: Any) -> None:
        self.events.append("on_prediction_step")

    def on_evaluate(self, *parts: Any, **more: Any) -> None:
        self.events.append("on_evaluate")

    def on_step_begin(self, *parts: Any, **more: Any) -> None:
        self.events.append("on_step_begin")


def begun(folder: Path, parts: dict[str, Any], cls: Any = Trainer, **settings: Any) -> tuple[Any, Heard]:
    heard = Heard()
    usual = {"eval_dataset": ROWS, "callbacks": [heard]}
    return runs.trainer(
        folder, cls, parts={**usual, **parts}, max_steps=1, eval_strategy="steps", eval_steps=1, save_strategy="steps",
        save_steps=1, **{"load_best_model_at_end": True, **settings},
    ), heard  # fmt: skip


@pytest.mark.parametrize("given", ["accuracy", ["accuracy", "mcc"], lambda prediction: {"accuracy": 0.5, "mcc": 1}])
def test_a_metric_that_is_not_there(tmp_path: Path, given: Any) -> None:
    run, heard = begun(tmp_path, {"compute_metrics": given}, metric_for_best_model="f1")
    with pytest.raises(SettingError, match=r"'f1' is not among the metrics.*eval_accuracy.*eval_loss"):
        run.train()
    assert heard.events == [] and run.state.log_history == []


def test_without_metrics(tmp_path: Path) -> None:
    run, heard = begun(tmp_path, {}, metric_for_best_model="accuracy")
    with pytest.raises(SettingError, match="These are: eval_loss"):
        run.train()
    assert heard.events == []


def test_several_datasets(tmp_path: Path) -> None:
    sets = {"easy": ROWS, "hard": ROWS[:3]}
    for name in ("accuracy", "loss"):
        run, heard = begun(tmp_path, {"eval_dataset": sets, "compute_metrics": "accuracy"}, metric_for_best_model=name)
        with pytest.raises(SettingError, match=f"'eval_easy_{name}' or 'eval_hard_{name}'"):
            run.train()
        assert heard.events == []
    run, _ = begun(
        tmp_path, {"eval_dataset": sets, "compute_metrics": "accuracy"}, metric_for_best_model="hard_accuracy"
    )
    run.train()
    assert run.state.best_metric == runs.logged(run, "eval_hard_accuracy")[1]


def test_several_numbers_are_no_number(tmp_path: Path) -> None:
    run, _ = begun(
        tmp_path, {"compute_metrics": "f1_per_class"}, metric_for_best_model="f1_per_class", greater_is_better=True
    )
    with pytest.raises(SettingError, match="must be a number"):
        run.train()


@pytest.mark.parametrize("compared", [False, True])
def test_a_direction_that_is_not_known(tmp_path: Path, compared: bool) -> None:
    """Also where the best is only noted."""
    parts = {"compute_metrics": lambda prediction: {"quux": 1.0}}
    with pytest.raises(SettingError, match=r"metric_for_best_model.*'quux'.*greater_is_better.*accuracy.*perplexity"):
        begun(tmp_path, parts, metric_for_best_model="quux", load_best_model_at_end=compared)[0].train()


def test_nothing_is_left_of_the_trial(tmp_path: Path) -> None:
    run, heard = begun(tmp_path, {"compute_metrics": "accuracy"}, metric_for_best_model="accuracy")
    run.train()
    plain = runs.trainer(tmp_path / "plain", parts={"eval_dataset": ROWS}, max_steps=1)
    plain.train()
    assert heard.events[0] == "on_step_begin"
    assert runs.difference(run.model, plain.model) == 0.0


def test_a_function_that_needs_more_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is told, and the run goes on."""

    def of_many(prediction: Any) -> dict[str, float]:
        if len(prediction.label_ids) < 6:
            raise ValueError("only one class")
        return {"score": 1.0}

    run, _ = begun(tmp_path, {"compute_metrics": of_many}, metric_for_best_model="score", greater_is_better=True)
    run.train()
    assert run.state.best_metric == 1.0
    assert any("tried before training" in record.getMessage() for record in caplog.records)


def test_early_stopping_by_a_metric_that_is_not_there(tmp_path: Path) -> None:
    run, heard = begun(
        tmp_path, {"callbacks": [EarlyStoppingCallback()], "compute_metrics": "accuracy"}, load_best_model_at_end=False,
        metric_for_best_model="f1",
    )  # fmt: skip
    with pytest.raises(SettingError, match="'f1' is not among"):
        run.train()
    assert heard.events == []


def test_an_evaluation_of_the_users_own_is_not_tried(tmp_path: Path) -> None:
    class Own(Trainer):
        def evaluate(self, *parts: Any, **more: Any) -> dict[str, float]:
            metrics = {"eval_own": 1.0}
            self.log(metrics)
            return metrics

    run, _ = begun(tmp_path, {}, Own, metric_for_best_model="own", greater_is_better=True)
    run.train()
    assert run.state.best_metric == 1.0
