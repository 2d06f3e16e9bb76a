"""`compute_metrics` of a trainer: names, several at once, in batches, and what an evaluation keeps for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import transformers
from trainer import runs

from burnish import EvalPrediction, Trainer
from burnish.core.errors import DataError, SettingError
from burnish.evaluation.collect import Collector

ROWS = tiny.class_rows(13, 3)


def classes_of(run: Any, rows: Any) -> tuple[Any, Any]:
    found = run.predict(rows)
    return found.predictions.argmax(-1), found.label_ids


def evaluated(folder: Path, given: Any, parts: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    usual = {"model": runs.classifier(num_labels=3), "compute_metrics": given, "eval_dataset": ROWS}
    return runs.trainer(folder, parts={**usual, **(parts or {})}, **settings).evaluate()


def test_by_name(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, parts={"model": runs.classifier(num_labels=3)})
    predicted, labels = classes_of(run, ROWS)
    for size in (1, 4, 13):
        found = evaluated(tmp_path, ["accuracy", "recall_per_class"], per_device_eval_batch_size=size)
        assert found["eval_accuracy"] == pytest.approx((predicted == labels).mean())
        by_class = [(predicted[labels == number] == number).mean() for number in range(3)]
        assert found["eval_recall_per_class"] == pytest.approx(by_class)
    assert evaluated(tmp_path, "accuracy")["eval_accuracy"] == found["eval_accuracy"]


def test_names_keep_no_predictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[Any] = []
    monkeypatch.setattr(Collector, "add", lambda self, outputs, rows=None: added.append(outputs))
    assert "eval_accuracy" in evaluated(tmp_path, "accuracy")
    assert added == []
    run = runs.trainer(tmp_path, parts={"model": runs.classifier(num_labels=3), "compute_metrics": "accuracy"})
    assert "test_accuracy" in run.predict(ROWS).metrics
    assert added != []


def test_predict_has_both(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, parts={"model": runs.classifier(num_labels=3), "compute_metrics": "accuracy"})
    found = run.predict(ROWS)
    assert found.metrics["test_accuracy"] == pytest.approx((found.predictions.argmax(-1) == found.label_ids).mean())
    assert "test_accuracy" not in run.predict(tiny.text_rows(3)).metrics


def test_names_and_functions(tmp_path: Path) -> None:
    found = evaluated(tmp_path, ["accuracy", lambda given: {"rows": len(given.label_ids)}])
    assert found["eval_rows"] == 13 and "eval_accuracy" in found


def test_an_unknown_name_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"compute_metrics='f1_makro'.*Did you mean 'f1_macro'"):
        runs.trainer(tmp_path, parts={"compute_metrics": ["f1_makro"]})


def test_tokens_of_a_causal_model(tmp_path: Path) -> None:
    """Position i is about token i + 1, and perplexity is that of the loss."""
    parts = {"model": tiny.llama(), "data_collator": transformers.DataCollatorForSeq2Seq(tiny.tokenizer()),
             "eval_dataset": tiny.language_rows(9)}  # fmt: skip
    found = evaluated(tmp_path, ["token_accuracy", "perplexity"], parts)
    assert found["eval_perplexity"] == pytest.approx(np.exp(found["eval_loss"]), rel=1e-5)
    assert 0 <= found["eval_token_accuracy"] < 0.2


def test_tags_have_the_names_of_the_config(tmp_path: Path) -> None:
    names = {0: "O", 1: "B-A", 2: "I-A"}
    parts = {"model": tiny.bert("TokenClassification", num_labels=3, id2label=names), "eval_dataset": tiny.tag_rows(9),
             "data_collator": transformers.DataCollatorForTokenClassification(tiny.tokenizer())}  # fmt: skip
    found = evaluated(tmp_path, "seqeval", parts)
    assert set(found) >= {"eval_precision", "eval_recall", "eval_f1", "eval_accuracy"}


def test_numbers(tmp_path: Path) -> None:
    rows = [{**row, "labels": float(number)} for number, row in enumerate(tiny.text_rows(9))]
    parts = {"model": runs.classifier(num_labels=1), "eval_dataset": rows}
    found = evaluated(tmp_path, ["mse", "pearson"], parts)
    assert found["eval_mse"] == pytest.approx(found["eval_loss"], rel=1e-6)
    assert -1 <= found["eval_pearson"] <= 1


def test_best_model_by_a_name(tmp_path: Path) -> None:
    run = runs.trainer(
        tmp_path, parts={"eval_dataset": tiny.class_rows(6), "compute_metrics": ["accuracy", "f1_per_class"]},
        max_steps=2, eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1,
        load_best_model_at_end=True, metric_for_best_model="accuracy",
    )  # fmt: skip
    run.train()
    assert run.state.best_metric == max(runs.logged(run, "eval_accuracy").values())
    assert all(isinstance(value, list) for value in runs.logged(run, "eval_f1_per_class").values())


def test_functions_called_with_each_batch(tmp_path: Path) -> None:
    seen: list[tuple[int, bool]] = []

    def metrics(given: EvalPrediction, compute_result: bool) -> dict[str, float]:
        seen.append((len(given.label_ids), compute_result))
        assert isinstance(given.predictions, torch.Tensor) and given.inputs is not None and given.losses is not None
        return {"batches": len(seen)} if compute_result else {}

    found = evaluated(
        tmp_path, metrics, batch_eval_metrics=True, per_device_eval_batch_size=4, include_for_metrics=["inputs", "loss"]
    )
    assert found["eval_batches"] == 4
    assert seen == [(4, False), (4, False), (4, False), (1, True)]


def test_errors_name_the_metric_and_the_shapes(tmp_path: Path) -> None:
    def broken(given: EvalPrediction) -> dict[str, float]:
        return {"x": given.predictions["no"]}

    with pytest.raises(SettingError, match=r"broken raised IndexError.*float32 \(13, 3\) and labels int64 \(13,\)"):
        evaluated(tmp_path, broken)


def test_scores_are_no_texts(tmp_path: Path) -> None:
    parts = {"model": tiny.llama(), "data_collator": transformers.DataCollatorForSeq2Seq(tiny.tokenizer()),
             "eval_dataset": tiny.language_rows(3), "processing_class": tiny.tokenizer()}  # fmt: skip
    with pytest.raises(SettingError, match=r"'exact_match'.*predict_with_generate"):
        evaluated(tmp_path, "exact_match", parts)


# ---------------------------------------------------------------- nothing is left out in silence


def renamed(count: int) -> list[tiny.Row]:
    return [{**row, "target": number % 3} for number, row in enumerate(tiny.text_rows(count))]


def test_labels_under_another_name_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"eval_dataset has no labels.*'target'"):
        evaluated(tmp_path, "accuracy", {"eval_dataset": renamed(5)})


def test_labels_that_a_loader_does_not_give(tmp_path: Path) -> None:
    """Where rows cannot be looked through before."""

    class Own(Trainer):
        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            return [{"input_ids": torch.tensor([[5, 6]]), "target": torch.tensor([1])}]

    run = runs.trainer(tmp_path, Own, parts={"compute_metrics": "accuracy", "eval_dataset": []})
    run.model.forward = lambda input_ids, **ignored: {"logits": torch.zeros(1, 2)}
    with pytest.raises(SettingError, match=r"no labels. label_names is \['labels'\].*'input_ids', 'target'"):
        run.evaluate()


def test_a_model_without_logits(tmp_path: Path) -> None:
    class OnlyLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": (self.weight * x - labels).square().mean()}

    rows = [{"x": float(number), "labels": 1.0} for number in range(3)]
    parts = {"model": OnlyLoss(), "data_collator": None, "train_dataset": rows, "eval_dataset": rows}
    with pytest.raises(SettingError, match="OnlyLoss returns nothing but its loss"):
        evaluated(tmp_path, "mse", parts)


def test_rows_that_are_not_finite_are_named_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Wherever they come in a batch, and whichever order batches come in."""
    rows = tiny.class_rows(13, 3)
    for number in (4, 11):
        rows[number]["input_ids"][1] = 95
    model = runs.classifier(num_labels=3)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[95] = float("nan")
    for number, row in enumerate(rows):
        if number not in (4, 11):
            row["input_ids"] = [min(token, 94) for token in row["input_ids"]]
    for given in (None, "accuracy"):
        caplog.clear()
        found = evaluated(tmp_path, given, {"model": model, "eval_dataset": rows})
        assert found["eval_nonfinite_rows"] == 2 and np.isnan(found["eval_loss"])
        said = [record.getMessage() for record in caplog.records if "not finite" in record.getMessage()]
        assert len(said) == 1 and "2 of 13 rows" in said[0] and "row 4, 11." in said[0]
    run = runs.trainer(tmp_path, parts={"model": model})
    unlabelled = [{name: value for name, value in row.items() if name != "labels"} for row in rows]
    assert run.predict(unlabelled).metrics["test_nonfinite_rows"] == 2
    assert "test_nonfinite_rows" not in run.predict(rows[:4]).metrics
