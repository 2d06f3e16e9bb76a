"""`evaluate` and `predict`: what they return, in which order, and what they are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import tiny
import torch
import transformers
from torch import nn
from trainer import runs

from burnish import EvalPrediction
from burnish.core.errors import SettingError


def logits_of(model: Any, rows: list[Any]) -> torch.Tensor:
    """Each row alone, without any trainer."""
    model.eval()
    with torch.no_grad():
        return torch.cat([model(torch.tensor([row["input_ids"]])).logits for row in rows])


def test_predictions_in_dataset_order(tmp_path: Path) -> None:
    rows = tiny.class_rows(11)
    for size, workers in ((1, 0), (4, 0), (4, 2), (11, 0)):
        run = runs.trainer(tmp_path, per_device_eval_batch_size=size, dataloader_num_workers=workers)
        found = run.predict(rows)
        assert np.allclose(found.predictions, logits_of(run.model, rows), atol=1e-5)
        assert found.label_ids.tolist() == [row["labels"] for row in rows]
        assert found.metrics["test_loss"] == pytest.approx(run.evaluate(rows)["eval_loss"])


def test_prediction_without_labels(tmp_path: Path) -> None:
    rows = tiny.text_rows(5)
    called = []
    run = runs.trainer(tmp_path, parts={"compute_metrics": lambda prediction: called.append(prediction) or {}})
    found = run.predict(rows)
    assert found.label_ids is None
    assert found.predictions.shape == (5, 2)
    assert "test_loss" not in found.metrics
    assert not called
    assert "test_runtime" in found.metrics
    data = datasets.Dataset.from_list(rows)
    assert np.allclose(run.predict(data).predictions, found.predictions)


def test_metrics_of_a_dict_of_sets(tmp_path: Path) -> None:
    """Each under its name; the best model by a metric of one of them."""
    sets = {"easy": tiny.class_rows(4), "hard": tiny.class_rows(7)}
    # each is tried before the first step
    scores = iter([0.0, 0.0, 0.1, 0.5, 0.2, 0.9, 0.3, 0.4])
    run = runs.trainer(
        tmp_path, parts={"eval_dataset": sets, "compute_metrics": lambda _: {"score": next(scores)}}, max_steps=3,
        eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1, load_best_model_at_end=True,
        metric_for_best_model="hard_score", greater_is_better=True,
    )  # fmt: skip
    run.train()
    assert runs.logged(run, "eval_easy_score") == {1: 0.1, 2: 0.2, 3: 0.3}
    assert runs.logged(run, "eval_hard_score") == {1: 0.5, 2: 0.9, 3: 0.4}
    assert run.state.best_global_step == 2 and run.state.best_metric == 0.9
    saved = transformers.BertForSequenceClassification.from_pretrained(run.state.best_model_checkpoint)
    assert runs.difference(saved, run.model) == 0.0
    run.compute_metrics = None
    losses = run.evaluate()
    assert losses["eval_hard_loss"] == pytest.approx(run.evaluate("hard")["eval_loss"])
    assert losses["eval_easy_loss"] == pytest.approx(run.evaluate(sets["easy"])["eval_loss"])
    assert len(run.get_eval_dataloader("hard").dataset) == 2


def test_a_metric_of_one_set_must_say_whose(tmp_path: Path) -> None:
    sets = {"easy": tiny.class_rows(2), "hard": tiny.class_rows(2)}
    run = runs.trainer(
        tmp_path, parts={"eval_dataset": sets}, max_steps=1, eval_strategy="epoch", save_strategy="epoch",
        load_best_model_at_end=True, metric_for_best_model="loss",
    )  # fmt: skip
    with pytest.raises(SettingError, match="'eval_easy_loss' or 'eval_hard_loss'"):
        run.train()


def test_names_of_metrics(tmp_path: Path) -> None:
    """Prefixed once; numbers of numpy and torch become plain ones; the loss may be the user's."""

    def metrics(prediction: EvalPrediction) -> dict[str, Any]:
        return {"f1": np.float32(0.5), "valid_recall": torch.tensor(0.25), "loss": 3.0}

    run = runs.trainer(tmp_path, parts={"compute_metrics": metrics, "eval_dataset": tiny.class_rows(3)})
    found = run.evaluate(metric_key_prefix="valid")
    assert found["valid_f1"] == 0.5 and found["valid_recall"] == 0.25
    assert type(found["valid_f1"]) is float
    assert "valid_valid_recall" not in found
    assert found["epoch"] == 0


def test_what_metrics_are_given(tmp_path: Path) -> None:
    seen: list[EvalPrediction] = []

    def metrics(prediction: Any) -> dict[str, float]:
        seen.append(prediction)
        logits, labels = prediction.predictions, prediction.label_ids
        return {"accuracy": float((logits.argmax(-1) == labels).mean())}

    rows = tiny.class_rows(7)
    run = runs.trainer(
        tmp_path, parts={"compute_metrics": metrics, "eval_dataset": rows}, include_for_metrics=["inputs", "loss"]
    )
    run.evaluate()
    (given,) = seen
    assert len(given) == 4
    assert given.losses.shape == (7,)
    assert given.losses.mean() == pytest.approx(run.evaluate()["eval_loss"], rel=1e-5)
    predictions, labels, *_ = given
    assert predictions.shape == (7, 2) and labels.tolist() == [row["labels"] for row in rows]


def test_inputs_for_metrics_are_the_main_input(tmp_path: Path) -> None:
    """As under transformers: the array of `input_ids`, padded."""
    seen: list[Any] = []
    rows = tiny.class_rows(7)
    run = runs.trainer(
        tmp_path,
        parts={"compute_metrics": lambda given: seen.append(given.inputs) or {}, "eval_dataset": rows},
        include_for_metrics=["inputs"],
    )
    run.evaluate()
    assert isinstance(seen[0], np.ndarray)
    assert [[token for token in row if token >= 0][:3] for row in seen[0].tolist()] == [
        row["input_ids"][:3] for row in rows
    ]


def test_preprocessed_logits(tmp_path: Path) -> None:
    """What is gathered is what the function returns of (logits, labels), also a tuple."""
    run = runs.trainer(tmp_path, parts={"preprocess_logits_for_metrics": lambda logits, labels: logits.argmax(-1)})
    rows = tiny.class_rows(6)
    assert run.predict(rows).predictions.tolist() == logits_of(run.model, rows).argmax(-1).tolist()
    run.preprocess_logits_for_metrics = lambda logits, labels: (logits[:, 0], labels == logits.argmax(-1))
    first, right = run.predict(rows).predictions
    assert first.shape == (6,) and right.dtype == np.bool_


def test_token_predictions_of_unequal_length(tmp_path: Path) -> None:
    rows = tiny.tag_rows(6)
    collator = transformers.DataCollatorForTokenClassification(tiny.tokenizer())
    model = tiny.bert("TokenClassification", num_labels=3)
    run = runs.trainer(tmp_path, parts={"model": model, "data_collator": collator}, per_device_eval_batch_size=1)
    found = run.predict(rows)
    longest = max(len(row["labels"]) for row in rows)
    assert found.predictions.shape == (6, longest, 3)
    assert [row[row != -100].tolist() for row in found.label_ids] == [row["labels"][1:] for row in rows]


def test_hidden_states_on_request(tmp_path: Path) -> None:
    """Ignored keys are left out; an empty list asks for everything."""
    run = runs.trainer(tmp_path, parts={"model": runs.classifier(output_hidden_states=True)})
    rows = tiny.class_rows(3)
    assert isinstance(run.predict(rows).predictions, np.ndarray)
    logits, hidden = run.predict(rows, ignore_keys=[]).predictions
    assert logits.shape == (3, 2)
    assert len(hidden) == 2 and hidden[0].shape[0] == 3


def test_label_names(tmp_path: Path) -> None:
    """Targets under a name of the user's own are counted, kept from pruning, and returned."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(2, 1)

        def forward(self, x: torch.Tensor, goal: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
            score = self.layer(x).squeeze(-1)
            return {"score": score} if goal is None else {"loss": (score - goal).square().mean(), "score": score}

    rows = [{"x": [1.0, float(number)], "goal": float(number)} for number in range(5)]
    parts = {"model": Own(), "data_collator": None, "train_dataset": rows}
    run = runs.trainer(tmp_path, parts=parts, label_names=["goal"], max_steps=2)
    run.train()
    found = run.predict(rows)
    assert found.label_ids.tolist() == [0, 1, 2, 3, 4]
    assert found.predictions.shape == (5,)
    scores, goals = torch.as_tensor(found.predictions), torch.as_tensor(found.label_ids)
    assert found.metrics["test_loss"] == pytest.approx((scores - goals).square().mean().item(), rel=1e-5)
    assert run.predict([{"x": row["x"]} for row in rows]).label_ids is None


def test_several_labels(tmp_path: Path) -> None:
    """Question answering has two: both are returned."""
    rows = [
        {**row, "start_positions": 1, "end_positions": 2 + number % 2} for number, row in enumerate(tiny.text_rows(4))
    ]
    run = runs.trainer(tmp_path, parts={"model": tiny.bert("QuestionAnswering"), "train_dataset": rows})
    found = run.predict(rows)
    start, end = found.label_ids
    assert start.tolist() == [1] * 4 and end.tolist() == [2, 3, 2, 3]
    assert len(found.predictions) == 2


def test_evaluation_keeps_the_mode_of_the_model(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, parts={"eval_dataset": tiny.class_rows(3)})
    for mode in (True, False):
        run.model.train(mode)
        run.evaluate()
        assert run.model.training is mode


def test_prediction_loss_only(tmp_path: Path) -> None:
    called: list[Any] = []
    parts = {"compute_metrics": lambda given: called.append(given) or {}, "eval_dataset": tiny.class_rows(3)}
    run = runs.trainer(tmp_path, parts=parts, prediction_loss_only=True)
    assert set(run.evaluate()) >= {"eval_loss"}
    assert run.predict(tiny.class_rows(3)).predictions is None
    assert not called
