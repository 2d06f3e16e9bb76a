"""Rows and batches that cannot be computed are refused by name, in evaluations and predictions as in training."""

from __future__ import annotations

from typing import Any

import pandas
import pytest
import tiny
import torch
from torch import nn

from burnish import Trainer, TrainingArguments
from burnish.core.errors import DataError, SettingError


def trainer(
    folder: Any, kind: type[Trainer] = Trainer, model: Any = None, settings: Any = None, **parts: Any
) -> Trainer:
    own = {"remove_unused_columns": False} if kind is not Trainer else {}
    usual = {"max_steps": 2, "per_device_train_batch_size": 4, "learning_rate": 0.1, "report_to": "none", **own}
    args = TrainingArguments(str(folder), **{**usual, **(settings or {})})
    parts = {"train_dataset": tiny.class_rows(8), "processing_class": tiny.tokenizer(), **parts}
    return kind(model or tiny.bert("SequenceClassification"), args, **parts)


def rows_with(**changes: Any) -> list[Any]:
    rows = tiny.class_rows(8)
    rows[5] = {**rows[5], **changes}
    return rows


class Stream(torch.utils.data.IterableDataset[Any]):
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return iter(self.rows)


LONG = {"input_ids": [5] * 30, "attention_mask": [1] * 30}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (rows_with(labels=7), r"row 5 has label 7"),
        (rows_with(**LONG), r"row 5 has 30 tokens"),
        (rows_with(input_ids=[96], attention_mask=[1]), r"row 5, position 0: token id 96"),
        (rows_with(input_ids=[], attention_mask=[]), r"row 5 has a label and no token"),
        (rows_with(input_ids=[5, 6], attention_mask=[0, 0]), r"row 5 has a label and no token"),
        ([], r"empty \(0 rows\)"),
    ],
)
def test_rows_are_looked_through_before_they_are_evaluated(tmp_path: Any, rows: list[Any], said: str) -> None:
    found = trainer(tmp_path)
    with pytest.raises(DataError, match=f"eval_dataset.*{said}"):
        found.evaluate(rows)
    with pytest.raises(DataError, match=f"test_dataset.*{said}"):
        found.predict(rows)


def test_rows_without_labels_are_predicted(tmp_path: Any) -> None:
    empty = {"input_ids": [], "attention_mask": []}  # of a language model, an empty line carries no loss
    assert len(trainer(tmp_path).predict(tiny.text_rows(5)).predictions) == 5
    rows = [*tiny.language_rows(4), {**empty, "labels": []}]
    assert trainer(tmp_path, model=tiny.llama(), train_dataset=rows).train().global_step == 2


@pytest.mark.parametrize("batch", [None, [], ()])
def test_a_collator_that_returns_nothing_is_refused(tmp_path: Any, batch: Any) -> None:
    with pytest.raises(DataError, match=r"data_collator returned .* for rows \["):
        trainer(tmp_path, data_collator=lambda rows: batch).train()


class Parcel:
    """A batch that only its user can open."""

    def __init__(self, rows: list[Any]) -> None:
        self.features = torch.ones(len(rows), 4)


class OwnLoss(Trainer):
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        return model(inputs.features if isinstance(inputs, Parcel) else torch.ones(len(inputs), 4)).mean()


@pytest.mark.parametrize("collate", [Parcel, lambda rows: ["a text" for _ in rows]])
def test_batches_of_any_kind_train_with_a_loss_of_ones_own(tmp_path: Any, collate: Any) -> None:
    model = tiny.seeded(lambda: nn.Linear(4, 1))
    before = model.weight.detach().clone()
    result = trainer(tmp_path, OwnLoss, model, data_collator=collate).train()
    assert result.training_loss == result.training_loss
    assert not torch.equal(model.weight, before)


def test_an_evaluation_of_no_known_name_is_refused(tmp_path: Any) -> None:
    with pytest.raises(SettingError, match=r"no evaluation dataset 'x'.*'a'"):
        trainer(tmp_path, eval_dataset={"a": tiny.class_rows(2)}).evaluate("x")
    with pytest.raises(SettingError, match=r"no evaluation dataset 'x'"):
        trainer(tmp_path).evaluate("x")


@pytest.mark.parametrize("model", ["bert-base-uncased", nn.Linear])
def test_a_name_or_a_class_is_no_model(tmp_path: Any, model: Any) -> None:
    with pytest.raises(SettingError, match=r"`model` must be an nn.Module, not"):
        trainer(tmp_path, model=model)


@pytest.mark.parametrize("metrics", [None, 0.5, [1.0], ("accuracy", 1.0)])
def test_metrics_without_names_are_refused(tmp_path: Any, metrics: Any) -> None:
    with pytest.raises(SettingError, match=f"compute_metrics must return a dict .* not {type(metrics).__name__}"):
        trainer(tmp_path, compute_metrics=lambda prediction: metrics).evaluate(tiny.class_rows(4))


def test_a_best_metric_that_is_no_number_is_told(tmp_path: Any, caplog: Any) -> None:
    found = trainer(
        tmp_path, eval_dataset=tiny.class_rows(4), compute_metrics=lambda prediction: {"score": float("nan")}
    )
    found.args.eval_strategy = found.args.save_strategy = "epoch"
    found.args.metric_for_best_model, found.args.greater_is_better = "score", True
    found.args.load_best_model_at_end = True
    found.train()
    assert "score is NaN in the evaluation at step 2" in caplog.text and found.state.best_metric is None


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ("imdb", r"is 'imdb', which has no rows"),
        (5, r"is 5, which has no rows"),
        (lambda: iter(()), r"is <function .* which has no rows"),
        ([tiny.class_rows(2), tiny.class_rows(2)], r"is a list of datasets, not a dataset"),
        (torch.utils.data.DataLoader([{"input_ids": [5, 6], "labels": 0}]), r"is a DataLoader.*Pass its dataset"),
        (pandas.DataFrame({"input_ids": [[5, 6]], "labels": [0]}), r"is a DataFrame of pandas.*Dataset.from_pandas"),
    ],
)
def test_what_is_no_dataset_is_refused(tmp_path: Any, dataset: Any, said: str) -> None:
    with pytest.raises(DataError, match=f"train_dataset {said}"):
        trainer(tmp_path, train_dataset=dataset).train()
    with pytest.raises(DataError, match=f"test_dataset {said}"):
        trainer(tmp_path).predict(dataset)


def test_rows_without_a_length_are_refused(tmp_path: Any) -> None:
    class Endless:
        def __getitem__(self, row: int) -> Any:
            return tiny.class_rows(1)[0]

    with pytest.raises(DataError, match=r"train_dataset: Endless has no length"):
        trainer(tmp_path, train_dataset=Endless()).train()


def test_data_without_a_target_are_refused(tmp_path: Any) -> None:
    rows = [{**row, "labels": [-100] * len(row["input_ids"])} for row in tiny.text_rows(8)]
    with pytest.raises(DataError, match=r"No row of train_dataset has a target: every label of all 2 steps"):
        trainer(tmp_path, model=tiny.llama(), train_dataset=rows).train()


@pytest.mark.parametrize("loss", [None, 3.0])
def test_a_loss_function_that_returns_no_tensor_is_refused(tmp_path: Any, loss: Any) -> None:
    with pytest.raises(SettingError, match=f"The loss function returned {loss}; it must return a tensor"):
        trainer(tmp_path, compute_loss_func=lambda outputs, labels, num_items_in_batch=None: loss).train()


def test_an_optimizer_of_other_weights_is_refused(tmp_path: Any) -> None:
    other = torch.optim.SGD(tiny.bert("SequenceClassification").parameters(), lr=0.1)
    with pytest.raises(SettingError, match=r"SGD holds no trainable weight of the BertForSequenceClassification"):
        trainer(tmp_path, optimizers=(other, None)).train()


def test_float16_weights_with_a_loss_scale_are_refused(tmp_path: Any) -> None:
    found = trainer(tmp_path, model=tiny.bert("SequenceClassification").half())
    found.args.fp16 = True
    with pytest.raises(SettingError, match=r"fp16=True needs float32 weights"):
        found.train()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_row_of_a_stream_is_named(tmp_path: Any, workers: int) -> None:
    rows = tiny.class_rows(12)
    rows[9]["labels"] = 7
    run = trainer(tmp_path, train_dataset=Stream(rows), settings={"max_steps": 3, "dataloader_num_workers": workers})
    with pytest.raises(DataError, match=r"train_dataset, `labels`: row 9 has label 7, outside 0 to 1"):
        run.train()
    assert run.state.global_step == 2
    with pytest.raises(DataError, match=r"eval_dataset, `labels`: row 9 has label 7"):
        run.evaluate(Stream(rows))


def test_the_rows_of_a_batch_that_cannot_be_made_are_named(tmp_path: Any) -> None:
    rows = tiny.class_rows(8)
    del rows[5]["attention_mask"]
    with pytest.raises(DataError, match=r"`attention_mask` has no value in row .*made of rows \[.*5.*\]"):
        trainer(tmp_path, train_dataset=rows, processing_class=None).train()


def test_a_dict_of_columns_is_no_dataset(tmp_path: Any) -> None:
    columns = tiny.tokenizer()(["w5 w6", "w7 w8"])
    with pytest.raises(DataError, match=r"is a dict of columns \(input_ids.*Dataset.from_dict"):
        trainer(tmp_path, train_dataset=columns).train()


def test_of_several_evaluation_datasets_the_one_at_fault_is_named(tmp_path: Any) -> None:
    parts = {"good": tiny.class_rows(2), "empty": []}
    with pytest.raises(DataError, match=r"eval_dataset \(eval_empty\) is empty"):
        trainer(tmp_path, eval_dataset=parts).evaluate()
    for ask in (lambda run: run.evaluate(), lambda run: run.train()):
        with pytest.raises(SettingError, match="eval_dataset is a dict without a dataset"):
            ask(trainer(tmp_path, eval_dataset={}, settings={"eval_strategy": "epoch"}))


def test_a_loss_for_each_row_is_refused(tmp_path: Any) -> None:
    def each(outputs: Any, labels: Any) -> Any:
        return nn.functional.cross_entropy(outputs.logits, labels, reduction="none")

    with pytest.raises(SettingError, match=r"returned a tensor of shape \(\d,\); it must return one number"):
        trainer(tmp_path, compute_loss_func=each).train()


def test_smoothing_that_a_loss_function_does_not_do_is_told(tmp_path: Any, caplog: Any) -> None:
    parts = {"compute_loss_func": lambda outputs, labels: nn.functional.cross_entropy(outputs.logits, labels)}
    trainer(tmp_path, settings={"label_smoothing_factor": 0.1}, **parts)
    assert "label_smoothing_factor=0.1 has no effect: compute_loss_func computes the loss" in caplog.text
    caplog.clear()
    trainer(tmp_path, settings={"label_smoothing_factor": 0.1})
    assert caplog.text == ""
