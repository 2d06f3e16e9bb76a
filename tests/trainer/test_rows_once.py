"""Evaluation and prediction with workers: each row once, in dataset order, of the dataset that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import tiny
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, get_worker_info
from trainer import runs

from burnish.core.errors import DataError


class Rows(Dataset[Any]):
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Any:
        return self.rows[place]


class Stream(IterableDataset[Any]):
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


class SharedStream(Stream):
    """Each worker reads its share."""

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        return iter(self.rows if worker is None else self.rows[worker.id :: worker.num_workers])


def in_shards(rows: list[Any]) -> Any:
    def read(shards: list[Any]) -> Iterator[Any]:
        for shard in shards:
            yield from shard

    return datasets.IterableDataset.from_generator(read, gen_kwargs={"shards": [rows[:5], rows[5:9], rows[9:]]})


KINDS: dict[str, Any] = {
    "list": list,
    "subset": lambda rows: Subset(Rows(rows[::-1]), list(range(len(rows)))[::-1]),
    "concatenated": lambda rows: ConcatDataset([Rows(rows[:5]), Rows(rows[5:])]),
    "datasets": datasets.Dataset.from_list,
    "stream": Stream,
    "stream with workers in mind": SharedStream,
    "stream of datasets": in_shards,
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_once_and_in_order(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    first = [{**row, "labels": number} for number, row in enumerate(tiny.class_rows(13, num_labels=30))]
    second = [{**row, "labels": 29 - number} for number, row in enumerate(tiny.class_rows(7, num_labels=30))]
    parts = {
        "model": runs.classifier(num_labels=30),
        "eval_dataset": {"first": KINDS[kind](first), "second": KINDS[kind](second)},
    }
    settings = {"dataloader_num_workers": 2, "dataloader_persistent_workers": True, "dataloader_prefetch_factor": 2}
    run = runs.trainer(tmp_path, parts=parts, **settings)
    assert run.predict(KINDS[kind](first)).label_ids.tolist() == [row["labels"] for row in first]
    assert run.predict(KINDS[kind](second)).label_ids.tolist() == [row["labels"] for row in second]
    both = run.evaluate()
    assert both["eval_first_loss"] != both["eval_second_loss"]
    assert run.evaluate(first)["eval_loss"] == pytest.approx(both["eval_first_loss"], abs=1e-6)
    assert run.evaluate(second)["eval_loss"] == pytest.approx(both["eval_second_loss"], abs=1e-6)


@pytest.mark.parametrize("stream", [False, True])
def test_evaluating_does_not_change_training(stream: bool, tmp_path: Path) -> None:
    def weights(folder: Path, **settings: Any) -> dict[str, Any]:
        wrap = Stream if stream else list
        parts = {
            "model": runs.classifier(hidden_dropout_prob=0.3, classifier_dropout=0.3),
            "train_dataset": wrap(tiny.class_rows(20)),
            "eval_dataset": wrap(tiny.class_rows(9)),
        }
        workers = {"dataloader_num_workers": 2, "dataloader_persistent_workers": True}
        run = runs.trainer(folder, parts=parts, max_steps=7, **workers, **settings)
        run.train()
        return runs.weights(run.model)

    without = weights(tmp_path / "without")
    evaluated = weights(tmp_path / "evaluated", eval_strategy="steps", eval_steps=1, eval_on_start=True)
    assert runs.difference(without, evaluated) == 0


def test_a_worker_says_what_is_wrong_and_no_more(tmp_path: Path) -> None:
    rows = tiny.class_rows(12)
    rows[9] = {**rows[9], "labels": 7}
    run = runs.trainer(tmp_path, parts={"train_dataset": Stream(rows)}, max_steps=4, dataloader_num_workers=1)
    with pytest.raises(DataError) as caught:
        run.train()
    assert str(caught.value).startswith("train_dataset") and "row 9 has label 7" in str(caught.value)
    assert "Traceback" not in str(caught.value)
