"""Evaluation and prediction on several processes: every row once, in the order of the dataset, on all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import tiny
import torch
import transformers
from distributed.forked import in_processes, values
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler
from trainer import runs

import burnish


class Stream(IterableDataset[Any]):
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


class OwnStep(burnish.Trainer):
    """Sees batches, which therefore come in the order of the dataset."""

    def prediction_step(self, *given: Any, **named: Any) -> Any:
        return super().prediction_step(*given, **named)


class SplitLoader(burnish.Trainer):
    """`DistributedSampler` fills up with rows of others."""

    def get_test_dataloader(self, dataset: Any) -> Any:
        sampler = DistributedSampler(dataset, shuffle=False) if self.args.world_size > 1 else None
        return DataLoader(dataset, 2, sampler=sampler, collate_fn=self.data_collator)

    get_eval_dataloader = get_test_dataloader


class PreparedLoader(burnish.Trainer):
    def get_test_dataloader(self, dataset: Any) -> Any:
        return self.accelerator.prepare(DataLoader(dataset, 2, collate_fn=self.data_collator))

    get_eval_dataloader = get_test_dataloader


class PlainLoader(burnish.Trainer):
    def get_test_dataloader(self, dataset: Any) -> Any:
        return DataLoader(dataset, 2, collate_fn=self.data_collator)

    get_eval_dataloader = get_test_dataloader


KINDS: dict[str, tuple[Any, Any]] = {
    "by length": (burnish.Trainer, list),
    "in order": (OwnStep, list),
    "stream": (burnish.Trainer, Stream),
    "split loader": (SplitLoader, list),
    "prepared loader": (PreparedLoader, list),
    "plain loader": (PlainLoader, list),
}


def counted(prediction: Any) -> dict[str, float]:
    right = prediction.predictions.argmax(-1) == prediction.label_ids
    return {"rows": len(prediction.label_ids), "accuracy": float(right.mean()), "inputs": prediction.inputs.shape[0]}


def judged(folder: Path, kind: str, count: int, batch: int) -> dict[str, Any]:
    """What `predict` and `evaluate` give."""
    cls, wrap = KINDS[kind]
    rows = tiny.class_rows(count, num_labels=7)
    parts = {"model": runs.classifier(num_labels=7), "compute_metrics": counted}
    given = {"per_device_eval_batch_size": batch, "include_for_metrics": ["inputs", "loss"]}
    run = runs.trainer(folder, cls, parts=parts, **given)
    found = run.predict(wrap(rows))
    metrics = {**found.metrics, **run.evaluate(wrap(rows))}
    return {
        "predictions": found.predictions,
        "labels": found.label_ids,
        "metrics": {name: value for name, value in metrics.items() if not name.endswith(("runtime", "per_second"))},
    }


@pytest.mark.parametrize(("count", "batch"), [(7, 2), (7, 8), (1, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_row_once_in_the_order_of_the_dataset(kind: str, count: int, batch: int, tmp_path: Path) -> None:
    """Also where there are fewer batches, or rows, than processes."""
    alone = judged(tmp_path / "alone", kind, count, batch)
    assert alone["labels"].tolist() == list(range(count)) and alone["metrics"]["test_rows"] == count
    for found in values(in_processes(2, tmp_path, judged, tmp_path / "together", kind, count, batch)):
        assert found["labels"].tolist() == list(range(count))
        np.testing.assert_allclose(found["predictions"], alone["predictions"], atol=1e-6)
        assert found["metrics"] == pytest.approx(alone["metrics"], rel=1e-6)


def loss_of(folder: Path) -> dict[str, float]:
    model = tiny.bert("TokenClassification", num_labels=3)
    parts = {"model": model, "train_dataset": None, "data_collator": None, "processing_class": tiny.tokenizer()}
    run = runs.trainer(folder, parts=parts, per_device_eval_batch_size=3)
    return run.evaluate(tiny.tag_rows(23))


def test_the_loss_is_a_mean_over_all_targets(tmp_path: Path) -> None:
    alone = loss_of(tmp_path)["eval_loss"]
    for found in values(in_processes(4, tmp_path, loss_of, tmp_path)):
        assert found["eval_loss"] == pytest.approx(alone, rel=1e-6)


def loss_of_random_masks(folder: Path, kinds: list[str], batches: list[int]) -> dict[str, float]:
    """By length, in order and of a stream."""
    collator = transformers.DataCollatorForLanguageModeling(tiny.tokenizer(), mlm_probability=0.3)
    found = {}
    for kind in kinds:
        cls, wrap = KINDS[kind]
        for batch in batches:
            parts = {"model": tiny.bert("MaskedLM"), "train_dataset": None, "data_collator": collator}
            run = runs.trainer(folder, cls, parts=parts, per_device_eval_batch_size=batch)
            found[f"{kind}, {batch}"] = run.evaluate(wrap(tiny.text_rows(23)))["eval_loss"]
    return found


def test_random_masks_are_those_of_the_rows(tmp_path: Path) -> None:
    """The loss is the same on any number of processes, for any size and order of batches."""
    given = (["by length", "in order", "stream"], [2, 5])
    alone = loss_of_random_masks(tmp_path, *given)
    expected = dict.fromkeys(alone, pytest.approx(alone["by length, 2"], rel=1e-6))
    assert alone == expected
    for count in (2, 4):
        for found in values(in_processes(count, tmp_path, loss_of_random_masks, tmp_path, *given)):
            assert found == expected


def of_a_shuffled_stream(folder: Path, seed: int | None, prediction: bool) -> list[Any]:
    stream = datasets.Dataset.from_list(tiny.class_rows(8)).to_iterable_dataset().shuffle(seed=seed, buffer_size=8)
    run = runs.trainer(folder, per_device_eval_batch_size=2)
    return sorted(run.predict(stream).label_ids.tolist()) if prediction else run.evaluate(stream)["eval_loss"]


@pytest.mark.parametrize("prediction", [False, True])
def test_streams_in_another_order_on_each_process_are_refused(prediction: bool, tmp_path: Path) -> None:
    """Rows would be evaluated twice or never."""
    alone = of_a_shuffled_stream(tmp_path, 4, prediction)
    for found in values(in_processes(2, tmp_path, of_a_shuffled_stream, tmp_path, 4, prediction)):
        assert found == pytest.approx(alone, rel=1e-6)
    for one in in_processes(2, tmp_path, of_a_shuffled_stream, tmp_path, None, prediction):
        assert one.error == "SettingError" and "_dataset is another stream on each process" in one.words, one


def ragged(folder: Path) -> Any:
    """Outputs of unequal width, and every process has other widths."""
    model = tiny.bert("TokenClassification", num_labels=3)
    parts = {"model": model, "train_dataset": None, "data_collator": None, "processing_class": tiny.tokenizer()}
    run = runs.trainer(folder, parts=parts, per_device_eval_batch_size=2)
    found = run.predict(tiny.tag_rows(9))
    return found.predictions, found.label_ids


def test_outputs_of_unequal_width(tmp_path: Path) -> None:
    alone = ragged(tmp_path)
    for found in values(in_processes(2, tmp_path, ragged, tmp_path)):
        for one, other in zip(found, alone, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


class ByBatch:
    """Adds up itself (`batch_eval_metrics`)."""

    def __init__(self) -> None:
        self.right = self.rows = 0

    def __call__(self, prediction: Any, compute_result: bool = False) -> Any:
        predicted, labels = torch.as_tensor(prediction.predictions), torch.as_tensor(prediction.label_ids)
        self.right += int((predicted.argmax(-1) == labels).sum())
        self.rows += len(labels)
        return {"accuracy": self.right / self.rows, "rows": self.rows} if compute_result else {}


def metrics_of(folder: Path, way: str) -> dict[str, Any]:
    metric = {"by batch": ByBatch(), "by name": "accuracy"}[way]
    parts = {"model": runs.classifier(num_labels=3), "compute_metrics": metric}
    run = runs.trainer(folder, parts=parts, batch_eval_metrics=way == "by batch", per_device_eval_batch_size=2)
    metrics = run.evaluate(tiny.class_rows(11, num_labels=3))
    return {name: value for name, value in metrics.items() if name in ("eval_accuracy", "eval_rows", "eval_loss")}


@pytest.mark.parametrize("way", ["by batch", "by name"])
def test_metrics_of_all_rows(way: str, tmp_path: Path) -> None:
    alone = metrics_of(tmp_path, way)
    assert "eval_accuracy" in alone
    for found in values(in_processes(2, tmp_path, metrics_of, tmp_path, way)):
        assert found == pytest.approx(alone, rel=1e-6)


def texts(folder: Path, **settings: Any) -> Any:
    given = {"predict_with_generate": True, "generation_max_length": 6, "per_device_eval_batch_size": 2, **settings}
    args = runs.arguments(folder, burnish.Seq2SeqTrainingArguments, **given)
    run = burnish.Seq2SeqTrainer(model=tiny.t5(), args=args, processing_class=tiny.tokenizer())
    found = run.predict(tiny.pair_rows(7))
    return found.predictions, found.label_ids


def test_written_texts(tmp_path: Path) -> None:
    alone = texts(tmp_path)
    for found in values(in_processes(2, tmp_path, texts, tmp_path)):
        for one, other in zip(found, alone, strict=True):
            np.testing.assert_array_equal(one, other)


def while_training(folder: Path) -> Any:
    """A run that ends with the best of its evaluations."""
    parts = {"eval_dataset": {"a": tiny.class_rows(5), "b": tiny.class_rows(3)}, "compute_metrics": "accuracy"}
    run = runs.trainer(
        folder,
        parts=parts,
        max_steps=4,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="eval_b_loss",
        learning_rate=0.05,
    )
    run.train()
    state = run.state
    return state.best_global_step, state.best_metric, Path(state.best_model_checkpoint).name, runs.weights(run.model)


def test_evaluations_of_a_run_and_its_best_weights(tmp_path: Path) -> None:
    one, other = values(in_processes(2, tmp_path, while_training, tmp_path / "out"))
    assert one[:3] == other[:3] and one[0] is not None
    assert runs.difference(one[3], other[3]) == 0.0


class Random:
    """A metric that is another on each process."""

    def __init__(self) -> None:
        self.values = iter([5, 4, 3, 2, 1] if os.environ["RANK"] == "0" else [1, 2, 3, 4, 5])

    def __call__(self, prediction: Any) -> dict[str, float]:
        return {"score": next(self.values)}


def judged_at_random(folder: Path) -> Any:
    run = runs.trainer(
        folder,
        parts={
            "eval_dataset": tiny.class_rows(6),
            "compute_metrics": Random(),
            "callbacks": [burnish.EarlyStoppingCallback(2)],
        },
        max_steps=4,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        metric_for_best_model="score",
        greater_is_better=True,
        load_best_model_at_end=True,
    )
    run.train()
    return run.state.best_global_step, run.state.global_step, runs.logged(run, "eval_score")


def test_all_decide_by_what_the_first_process_finds(tmp_path: Path) -> None:
    """The metric falls on process 0, and rises on process 1, which would go on alone."""
    found = values(in_processes(2, tmp_path, judged_at_random, tmp_path / "out"))
    assert found == [(1, 3, {1: 4, 2: 3, 3: 2})] * 2
