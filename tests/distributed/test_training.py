"""Training on several processes: shares that are empty, streams, loaders of a user's own, buffers, and
parameters without a gradient."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from distributed.forked import in_processes, values
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data.distributed import DistributedSampler
from trainer import runs

import burnish

PLAIN: dict[str, Any] = {
    "learning_rate": 0.05,
    "optim": "sgd",
    "max_grad_norm": 0.0,
    "lr_scheduler_type": "constant",
    "train_sampling_strategy": "sequential",
}


def settings(count: int, **changes: Any) -> dict[str, Any]:
    """Plain gradient descent, 8 examples a step."""
    return {**PLAIN, "num_train_epochs": 1, "per_device_train_batch_size": 8 // count, **changes}


def outcome(run: Any) -> dict[str, Any]:
    run.train()
    return {
        "loss": runs.logged(run, "loss"),
        "weights": runs.weights(run.model),
        "examples": run.state.num_examples_seen,
        "steps": run.state.global_step,
    }


def assert_same(alone: dict[str, Any], found: list[dict[str, Any]]) -> None:
    for one in found:
        assert (one["examples"], one["steps"]) == (alone["examples"], alone["steps"])
        assert one["loss"] == pytest.approx(alone["loss"], rel=2e-5)
        assert runs.difference(one["weights"], alone["weights"]) < 1e-6


# ---------------------------------------------------------------- data


class NotedRows(Dataset[Any]):
    """Rows that note when they are read, and by no means tell their length before."""

    def __init__(self, count: int) -> None:
        self.rows, self.read = tiny.class_rows(count), list[int]()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Any:
        self.read.append(number)
        return self.rows[number]


class Stream(IterableDataset[Any]):
    def __init__(self, count: int) -> None:
        self.rows = tiny.class_rows(count)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


def on_noted_rows(folder: Path, count: int) -> dict[str, Any]:
    rows = NotedRows(19)
    run = runs.trainer(folder, parts={"train_dataset": rows}, **settings(count))
    run.add_callback(_Reset(rows))
    return {**outcome(run), "read": rows.read}


class _Reset(burnish.TrainerCallback):
    """Forgets what was read before the first step."""

    def __init__(self, rows: NotedRows) -> None:
        self.rows = rows

    def on_train_begin(self, *given: Any, **named: Any) -> None:
        self.rows.read.clear()


def test_every_row_is_read_by_one_process(tmp_path: Path) -> None:
    alone = on_noted_rows(tmp_path / "alone", 1)
    found = values(in_processes(2, tmp_path, on_noted_rows, tmp_path / "together", 2))
    assert_same(alone, found)
    assert sorted(found[0]["read"] + found[1]["read"]) == list(range(19))


def on_stream(folder: Path, count: int, workers: int = 0) -> dict[str, Any]:
    changes = {"max_steps": 3, "dataloader_num_workers": workers}
    return outcome(runs.trainer(folder, parts={"train_dataset": Stream(19)}, **settings(count, **changes)))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_is_shared_out_row_by_row(workers: int, tmp_path: Path) -> None:
    """19 rows: two steps of 8 and one of 3."""
    alone = on_stream(tmp_path / "alone", 1)
    assert_same(alone, values(in_processes(4, tmp_path, on_stream, tmp_path / "together", 4, workers)))


def on_few_rows(folder: Path, count: int, without_target: int = 0) -> dict[str, Any]:
    rows = tiny.tag_rows(6)
    for row in rows[:without_target]:
        row["labels"] = [-100] * len(row["labels"])
    model = tiny.bert("TokenClassification", num_labels=3)
    parts = {"model": model, "train_dataset": rows, "data_collator": None, "processing_class": tiny.tokenizer()}
    return outcome(runs.trainer(folder, parts=parts, **settings(count, per_device_train_batch_size=4 // count)))


@pytest.mark.parametrize("without_target", [0, 2, 3, 4])
def test_a_process_without_a_target(without_target: int, tmp_path: Path) -> None:
    """Steps of 4 rows and of 2 on 4 processes. With 4 the first step has no target at all."""
    alone = on_few_rows(tmp_path / "alone", 1, without_target)
    assert_same(alone, values(in_processes(4, tmp_path, on_few_rows, tmp_path / "together", 4, without_target)))


# ---------------------------------------------------------------- a user's own loader


class PlainLoader(burnish.Trainer):
    def get_train_dataloader(self) -> Any:
        return DataLoader(self.train_dataset, 4, shuffle=True, collate_fn=self.data_collator)


class SplitLoader(burnish.Trainer):
    def get_train_dataloader(self) -> Any:
        count = self.args.world_size
        sampler = DistributedSampler(self.train_dataset, shuffle=False) if count > 1 else None
        return DataLoader(self.train_dataset, 8 // count, sampler=sampler, collate_fn=self.data_collator)


class OursWrapped(burnish.Trainer):
    def get_train_dataloader(self) -> Any:
        return super().get_train_dataloader()


class OwnSplit(burnish.Trainer):
    """Every process has a dataset of its own."""

    def get_train_dataloader(self) -> Any:
        count, index = self.args.world_size, self.args.process_index
        return DataLoader(self.train_dataset[index::count], 8 // count, collate_fn=self.data_collator)


def with_loader(folder: Path, count: int, cls: Any, accumulation: int = 1) -> dict[str, Any]:
    changes = {"gradient_accumulation_steps": accumulation, "per_device_train_batch_size": 8 // count // accumulation}
    rows = tiny.class_rows(18)
    return outcome(runs.trainer(folder, cls, parts={"train_dataset": rows}, **settings(count, **changes)))


@pytest.mark.parametrize("cls", [SplitLoader, OursWrapped, OwnSplit])
def test_a_loader_that_gives_each_process_its_own(cls: Any, tmp_path: Path) -> None:
    alone = with_loader(tmp_path / "alone", 1, cls)
    assert_same(alone, values(in_processes(2, tmp_path, with_loader, tmp_path / "together", 2, cls)))


def uneven(folder: Path) -> dict[str, Any]:
    """17 rows in batches of 4: process 0 has three of them, and process 1 two."""
    parts = {"train_dataset": tiny.class_rows(17)}
    return outcome(runs.trainer(folder, OwnSplit, parts=parts, **settings(2, num_train_epochs=2)))


def test_loaders_of_unequal_length(tmp_path: Path) -> None:
    one, other = values(in_processes(2, tmp_path, uneven, tmp_path))
    assert (one["steps"], one["examples"]) == (other["steps"], other["examples"]) == (6, 34)
    assert runs.difference(one["weights"], other["weights"]) == 0.0


def test_batches_of_a_plain_loader_are_dealt_out(tmp_path: Path) -> None:
    """18 rows in batches of 4: in the last round process 1 has none. Two batches a step, on one process or on two."""
    alone = with_loader(tmp_path / "alone", 1, PlainLoader, 2)
    assert alone["steps"] == 3
    found = values(in_processes(2, tmp_path, with_loader, tmp_path / "together", 2, PlainLoader, 1))
    assert_same(alone, found)


# ---------------------------------------------------------------- settings of torch's wrapper


class Normed(nn.Module):
    """Has running statistics, and a part that is used only where a row asks for it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.always, self.seldom = nn.BatchNorm1d(2), nn.Linear(2, 1), nn.Linear(2, 1)
        self.seldom_used = True

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        x = self.norm(x)
        out = self.always(x) + (self.seldom(x) if self.seldom_used else 0)
        return {"loss": (out.squeeze(-1) - labels).square().mean(), "logits": out}


def number_rows(count: int) -> list[dict[str, Any]]:
    """Of even number, which process 0 gets, and of odd number, which differ in the mean."""
    return [
        {"x": [number % 2 + 0.1 * (number % 5), 1.0 - number % 3], "labels": number % 4 / 2} for number in range(count)
    ]


def with_unused(folder: Path, used_on: tuple[int, ...], **changes: Any) -> dict[str, Any]:
    model = Normed()
    model.seldom_used = int(os.environ["RANK"]) in used_on
    parts = {"model": model, "train_dataset": number_rows(12), "data_collator": None}
    run = runs.trainer(folder, parts=parts, **settings(2, **changes))
    return {**outcome(run), "mean": run.model.norm.running_mean.tolist()}


def test_buffers_are_those_of_the_first_process(tmp_path: Path) -> None:
    """Before each step; what the last one changed is each process's own."""
    found = values(in_processes(2, tmp_path, with_unused, tmp_path / "out", (0, 1), max_steps=2))
    apart = values(
        in_processes(2, tmp_path, with_unused, tmp_path / "b", (0, 1), max_steps=2, ddp_broadcast_buffers=False)
    )
    gaps = [abs(a["mean"][0] - b["mean"][0]) for a, b in (found, apart)]
    assert 0 < gaps[0] < gaps[1]


@pytest.mark.parametrize("used_on", [(), (1,)])
def test_a_parameter_without_a_gradient_is_named_with_the_setting(used_on: tuple[int, ...], tmp_path: Path) -> None:
    """Also where one process uses it and waits for the other."""
    began = time.monotonic()
    ended = in_processes(2, tmp_path, with_unused, tmp_path / "out", used_on, max_steps=2)
    assert time.monotonic() - began < 30
    assert ended[0].error == "SettingError"
    for word in ("seldom.weight", "seldom.bias", "process 0", "ddp_find_unused_parameters=True"):
        assert word in ended[0].words
    assert ended[1].error is not None


@pytest.mark.parametrize("used_on", [(), (0,), (0, 1)])
def test_parameters_without_a_gradient_may_be_looked_for(used_on: tuple[int, ...], tmp_path: Path) -> None:
    one, other = values(
        in_processes(2, tmp_path, with_unused, tmp_path / "out", used_on, max_steps=3, ddp_find_unused_parameters=True)
    )
    assert runs.difference(one["weights"], other["weights"]) == 0.0
    moved = not torch.equal(one["weights"]["seldom.weight"], Normed().seldom.weight)
    assert moved == bool(used_on)


def with_settings(folder: Path, count: int, **changes: Any) -> dict[str, Any]:
    return outcome(runs.trainer(folder, **settings(count, **changes)))


def test_settings_of_the_wrapper_have_their_effect(tmp_path: Path) -> None:
    alone = with_settings(tmp_path / "alone", 1, num_train_epochs=2)
    for changes in ({"ddp_static_graph": True}, {"ddp_bucket_cap_mb": 1}, {"ddp_backend": "gloo", "ddp_timeout": 30}):
        given = {"num_train_epochs": 2, **changes}
        assert_same(alone, values(in_processes(2, tmp_path, with_settings, tmp_path / "out", 2, **given)))


class ReadByOne(Stream):
    """A stream that cannot be read by two, such as a connection; it says who has read it."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.read = 0

    def __iter__(self) -> Iterator[Any]:
        for row in super().__iter__():
            self.read += 1
            yield row


def on_stream_of_one(folder: Path, count: int) -> dict[str, Any]:
    rows = ReadByOne(19)
    changes: dict[str, Any] = {"max_steps": 3, "dataloader_num_workers": 2}
    if count > 1:
        changes["accelerator_config"] = {"dispatch_batches": True}
    return {
        **outcome(runs.trainer(folder, parts={"train_dataset": rows}, **settings(count, **changes))),
        "read": rows.read,
    }


def test_the_first_process_reads_a_stream_for_all(tmp_path: Path) -> None:
    alone = on_stream(tmp_path / "alone", 1)
    found = values(in_processes(2, tmp_path, on_stream_of_one, tmp_path / "together", 2))
    assert_same(alone, found)
    assert [one["read"] for one in found] == [19, 0]


def shard_of_rows(numbers: list[int], log: str) -> Iterator[Any]:
    """Rows of some shards of four; each is noted when it is begun."""
    for number in numbers:
        with open(log, "a") as file:
            file.write(f"{os.environ.get('RANK', '0')}:{number} ")
        yield from tiny.class_rows(16)[4 * number : 4 * number + 4]


def on_shards(folder: Path, steps: int, resume: bool = False) -> dict[str, Any]:
    import datasets

    log = str(folder / "read")
    rows = datasets.IterableDataset.from_generator(shard_of_rows, gen_kwargs={"numbers": [0, 1, 2, 3], "log": log})
    changes = {"max_steps": steps, "split_stream": True, "save_strategy": "steps", "save_steps": 1}
    run = runs.trainer(folder, parts={"train_dataset": rows}, **settings(4, **changes))
    run.args.resume_from_checkpoint = resume or None
    return outcome(run)


def test_each_process_reads_its_shards_of_a_stream(tmp_path: Path) -> None:
    """16 rows in 4 shards: each of two processes has 8, and takes 2 of them in each of 4 steps."""
    folder = tmp_path / "whole"
    folder.mkdir()
    whole = values(in_processes(2, tmp_path, on_shards, folder, 4))
    assert [one["examples"] for one in whole] == [16, 16]
    read = set((folder / "read").read_text().split())
    assert read == {"0:0", "0:2", "1:1", "1:3"} or read == {"0:0", "0:1", "1:2", "1:3"}
    assert runs.difference(whole[0]["weights"], whole[1]["weights"]) == 0.0
    parts = tmp_path / "parts"
    parts.mkdir()
    values(in_processes(2, tmp_path, on_shards, parts, 2))
    resumed = values(in_processes(2, tmp_path, on_shards, parts, 4, resume=True))
    assert runs.difference(resumed[0]["weights"], whole[0]["weights"]) == 0.0


def test_a_stream_that_cannot_be_split(tmp_path: Path) -> None:
    def refused(folder: Path) -> None:
        runs.trainer(folder, parts={"train_dataset": Stream(8)}, **settings(2, max_steps=1, split_stream=True)).train()

    ended = in_processes(2, tmp_path, refused, tmp_path / "out")
    assert [one.error for one in ended] == ["SettingError"] * 2 and "split_stream=False" in ended[0].words
