"""Datasets that can only be read in order, and those of the package `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import tiny
import torch
from torch.utils.data import Dataset, IterableDataset
from trainer import runs

from burnish.core.errors import CheckpointError, DataError, SettingError


class Stream(IterableDataset[Any]):
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        yield from self.rows


class SizedStream(Stream):
    def __len__(self) -> int:
        return len(self.rows)


class Once(IterableDataset[Any]):
    """Can be read once, like a generator over a pipe."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = iter(rows)

    def __iter__(self) -> Iterator[Any]:
        return self.rows


class MapStyle(Dataset[Any]):
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Any:
        return self.rows[number]


def their_stream(rows: list[Any]) -> datasets.IterableDataset:
    return datasets.IterableDataset.from_generator(lambda: iter(rows))


SEQUENTIAL = {"train_sampling_strategy": "sequential", "adam_epsilon": 1e-5}
KINDS = {
    "torch": Stream,
    "torch_sized": SizedStream,
    "once": Once,
    "datasets_stream": their_stream,
    "datasets_stream_of_table": lambda rows: datasets.Dataset.from_list(rows).to_iterable_dataset(),
    "datasets": datasets.Dataset.from_list,
    "map_style": MapStyle,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_same_as_a_list(kind: str, workers: int, tmp_path: Path) -> None:
    """The rows in their order, whatever holds them; the last, incomplete step included."""
    rows = tiny.class_rows(18)
    plain = runs.trainer(tmp_path, parts={"train_dataset": rows}, max_steps=5, **SEQUENTIAL)
    plain.train()
    parts = {"train_dataset": KINDS[kind](rows)}
    other = runs.trainer(tmp_path, parts=parts, max_steps=5, dataloader_num_workers=workers, **SEQUENTIAL)
    other.train()
    assert runs.difference(plain.model, other.model) < 1e-6
    assert other.state.num_examples_seen == 18


def test_length_of_a_stream(tmp_path: Path) -> None:
    """A stream without a length needs max_steps; one with a length does not."""
    rows = tiny.class_rows(18)
    with pytest.raises(SettingError, match="max_steps must be set"):
        runs.trainer(tmp_path, parts={"train_dataset": Stream(rows)}, num_train_epochs=1).train()
    run = runs.trainer(tmp_path, parts={"train_dataset": SizedStream(rows)}, num_train_epochs=2)
    run.train()
    assert run.state.global_step == 10
    assert run.state.epoch == 2.0


def test_several_passes(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, parts={"train_dataset": Stream(tiny.class_rows(6))}, max_steps=5)
    run.train()
    assert run.state.num_examples_seen == 4 + 2 + 4 + 2 + 4


def test_a_stream_that_ends(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, parts={"train_dataset": Once(tiny.class_rows(6))}, max_steps=5)
    with pytest.raises(DataError, match="gave no rows in pass 2; 2 of 5 steps are done"):
        run.train()
    with pytest.raises(DataError, match="no rows"):
        runs.trainer(tmp_path, parts={"train_dataset": Stream([])}, max_steps=5).train()


def test_dropping_the_last(tmp_path: Path) -> None:
    parts = {"train_dataset": Stream(tiny.class_rows(6))}
    run = runs.trainer(tmp_path, parts=parts, max_steps=3, dataloader_drop_last=True)
    run.train()
    assert run.state.num_examples_seen == 12


def test_a_stream_is_told_the_pass(tmp_path: Path) -> None:
    class Told(Stream):
        passes: list[int]

        def set_epoch(self, epoch: int) -> None:
            self.passes = [*getattr(self, "passes", []), epoch]

    data = Told(tiny.class_rows(4))
    runs.trainer(tmp_path, parts={"train_dataset": data}, max_steps=3).train()
    assert data.passes == [0, 1, 2]


@pytest.mark.parametrize("kind", ["torch", "torch_sized", "datasets_stream"])
def test_evaluating_a_stream(kind: str, tmp_path: Path) -> None:
    rows = tiny.class_rows(7)
    run = runs.trainer(tmp_path, parts={"eval_dataset": KINDS[kind](rows)}, max_steps=1, eval_strategy="epoch")
    run.train()
    assert run.evaluate()["eval_loss"] == pytest.approx(run.evaluate(rows)["eval_loss"], rel=1e-5)
    assert run.predict(KINDS[kind](rows)).label_ids.tolist() == [row["labels"] for row in rows]


def test_unused_columns_of_a_stream(tmp_path: Path) -> None:
    rows = [{**row, "text": "w5"} for row in tiny.class_rows(8)]
    for data in (Stream(rows), their_stream(rows), rows, datasets.Dataset.from_list(rows)):
        run = runs.trainer(tmp_path, parts={"train_dataset": data}, max_steps=1)
        run.train()
        assert run.state.global_step == 1


def test_resuming_within_a_pass(tmp_path: Path) -> None:
    rows = tiny.class_rows(18)

    def run(**settings: Any) -> Any:
        return runs.trainer(
            tmp_path, parts={"train_dataset": Stream(rows), "model": runs.classifier(hidden_dropout_prob=0.2)},
            max_steps=7, save_strategy="steps", save_steps=3, **settings,
        )  # fmt: skip

    straight = run()
    straight.train()
    resumed = run()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert runs.difference(straight.model, resumed.model) == 0.0
    assert runs.without_times(straight.state.log_history) == runs.without_times(resumed.state.log_history)


class Watched:
    """Counts the rows that are read of a stream of `datasets`."""

    def __init__(self) -> None:
        self.rows = 0

    def stream(self, rows: list[Any], shuffled: bool = False) -> datasets.IterableDataset:
        def count(row: Any) -> Any:
            self.rows += 1
            return row

        made = datasets.Dataset.from_list(rows).to_iterable_dataset(num_shards=2).map(count)
        return made.shuffle(seed=3, buffer_size=6) if shuffled else made


@pytest.mark.parametrize("stop", [3, 5, 7])
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_stream_of_datasets_goes_on_from_its_own_state(stop: int, shuffled: bool, tmp_path: Path) -> None:
    """18 rows, five steps a pass. Nothing before the checkpoint is read again, but where rows wait in a buffer."""
    rows = [{**row, "note": "not for the model"} for row in tiny.class_rows(18)]

    def run(watched: Watched, folder: Path) -> Any:
        parts = {"train_dataset": watched.stream(rows, shuffled), "model": runs.classifier(hidden_dropout_prob=0.2)}
        return runs.trainer(folder, parts=parts, max_steps=9, save_strategy="steps", save_steps=stop)

    whole, left = Watched(), Watched()
    straight = run(whole, tmp_path)
    straight.train()
    resumed = run(left, tmp_path)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{stop}"))
    assert runs.difference(straight.model, resumed.model) == 0.0
    assert runs.without_times(straight.state.log_history) == runs.without_times(resumed.state.log_history)
    if not shuffled:
        assert left.rows == whole.rows - stop * 4 + (2 if stop >= 5 else 0)
    elif stop != 5:
        assert left.rows > whole.rows - stop * 4


@pytest.mark.slow
def test_the_state_of_a_stream_comes_from_the_worker_that_reads_it(tmp_path: Path) -> None:
    """The worker is some steps ahead of the training."""

    def run() -> Any:
        parts = {"train_dataset": their_stream(tiny.class_rows(18))}
        return runs.trainer(
            tmp_path, parts=parts, max_steps=9, save_strategy="steps", save_steps=2, dataloader_num_workers=1
        )

    straight = run()
    straight.train()
    resumed = run()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert runs.difference(straight.model, resumed.model) == 0.0


def test_a_stream_is_read_from_its_begin_after_a_run_that_was_resumed(tmp_path: Path) -> None:
    data = their_stream(tiny.class_rows(18))
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    straight = runs.trainer(tmp_path / "a", parts={"train_dataset": data}, **settings)
    straight.train()
    runs.trainer(tmp_path / "a", parts={"train_dataset": data}, **settings).train(
        resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-2")
    )
    again = runs.trainer(tmp_path / "b", parts={"train_dataset": data}, **settings)
    again.train()
    assert runs.difference(straight.model, again.model) == 0.0


def test_another_stream_is_refused(tmp_path: Path) -> None:
    rows = tiny.class_rows(18)
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    runs.trainer(tmp_path, parts={"train_dataset": their_stream(rows)}, **settings).train()
    other = datasets.interleave_datasets([their_stream(rows), their_stream(rows)])
    with pytest.raises(CheckpointError, match="another stream than that of the checkpoint"):
        runs.trainer(tmp_path, parts={"train_dataset": other}, **settings).train(
            resume_from_checkpoint=str(tmp_path / "checkpoint-2")
        )


def test_lazy_rows_are_drawn_once_for_their_place(tmp_path: Path) -> None:
    """A map-style dataset that draws at random gives a row the same draw whatever is read before it."""

    class Draws(MapStyle):
        def __getitem__(self, number: int) -> Any:
            row = dict(self.rows[number])
            row["input_ids"] = [*row["input_ids"][:-1], int(torch.randint(5, 90, ()))]
            return row

    def trained(**settings: Any) -> Any:
        run = runs.trainer(tmp_path, parts={"train_dataset": Draws(tiny.class_rows(12))}, max_steps=6, **settings)
        run.train()
        return run.model

    plain = trained()
    assert runs.difference(plain, trained(dataloader_num_workers=2)) == 0.0
    assert runs.difference(plain, trained(seed=1)) > 0.0
