"""An evaluation gives the same numbers however it is computed: batch sizes, processes, padding, order of the rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import tiny
import transformers
from distributed.forked import in_processes, values
from distributed.test_evaluating import OwnStep, Stream
from trainer import runs

import burnish

ROWS = 23
MODELS: dict[str, tuple[Any, Any, list[str]]] = {
    "classes": (lambda: runs.classifier(num_labels=4), lambda: tiny.class_rows(ROWS, num_labels=4),
                ["accuracy", "f1_macro", "roc_auc", "mcc"]),
    "tags": (lambda: tiny.bert("TokenClassification", num_labels=3), lambda: tiny.tag_rows(ROWS),
             ["accuracy", "f1_macro"]),
    "causal language model": (tiny.llama, lambda: tiny.language_rows(ROWS), ["token_accuracy", "perplexity"]),
    "perplexity": (tiny.llama, lambda: tiny.language_rows(ROWS), ["perplexity"]),
}  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "one by one": {"per_device_eval_batch_size": 1, "padding_free": False, "logits_at_targets": False},
    "batches of 3": {"per_device_eval_batch_size": 3},
    "a batch of all": {"per_device_eval_batch_size": 64, "padding_free": False},
    "without padding": {"per_device_eval_batch_size": 5, "padding_free": True},
    "packed in training": {"per_device_eval_batch_size": 4, "packing": True, "packing_length": 48},
    "shuffled": {"per_device_eval_batch_size": 4},
    "in dataset order": {"per_device_eval_batch_size": 4},
    "a stream": {"per_device_eval_batch_size": 4},
}


def evaluated(kind: str, folder: Path, way: str) -> dict[str, float]:
    """Loss and metrics, and the loss of an evaluation that computes nothing else."""
    build, rows_of, metrics = MODELS[kind]
    rows = rows_of()
    if way == "shuffled":
        random.Random(0).shuffle(rows)
    parts = {
        "model": build(),
        "eval_dataset": Stream(rows) if way == "a stream" else rows,
        "data_collator": transformers.DataCollatorForTokenClassification(tiny.tokenizer()) if kind != "classes" else
        runs.collator(),
    }  # fmt: skip
    cls = OwnStep if way == "in dataset order" else burnish.Trainer
    settings = {name: value for name, value in WAYS[way].items() if kind != "classes" or "packing" not in name}
    found = {}
    for name, asked in (("with metrics", metrics), ("alone", None)):
        run = runs.trainer(folder, cls, {**parts, "compute_metrics": asked}, **settings)
        shown = {key: value for key, value in run.evaluate().items() if not key.endswith(("second", "runtime"))}
        found |= {f"{key} {name}": value for key, value in shown.items()}
    return found


def every_way(kind: str, folder: Path) -> dict[str, dict[str, float]]:
    return {way: evaluated(kind, folder / str(number), way) for number, way in enumerate(WAYS)}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_same_numbers(kind: str, processes: int, tmp_path: Path) -> None:
    right = evaluated(kind, tmp_path, "one by one")
    assert right["eval_loss alone"] == pytest.approx(right["eval_loss with metrics"], abs=1e-6)
    if processes == 1:
        of_processes = [every_way(kind, tmp_path)]
    else:
        of_processes = values(in_processes(processes, tmp_path, every_way, kind, tmp_path / "several"))
    for ways in of_processes:
        for way, found in ways.items():
            assert found == pytest.approx(right, abs=1e-6, rel=1e-6), way
