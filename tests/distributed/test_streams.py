"""Streams on several processes go on from their own state: the same bits, and no shard is read again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import tiny
from distributed.forked import in_processes, values
from distributed.test_checkpoints import Stop
from distributed.test_fsdp import whole
from distributed.test_training import PLAIN
from trainer import runs

from burnish.core.errors import CheckpointError

SHARDS = (6, 6, 4, 8)
"""Rows of each shard. Of two processes the first has shards 0 and 2, the second 1 and 3, and more rows."""
MANY = 9
"""Steps of 4 rows of a pass and a bit: of one pass there are 7 in parts, 6 otherwise."""


def rows_of(numbers: list[int], log: str) -> Iterator[Any]:
    """The rows of some shards; each that is read is noted."""
    for number in numbers:
        first = sum(SHARDS[:number])
        for row in tiny.class_rows(sum(SHARDS))[first : first + SHARDS[number]]:
            with open(log, "a") as file:
                file.write(f"{os.environ.get('RANK', '0')}:{number} ")
            yield row


def trained(
    folder: Path, batch: int, stop: int | None = None, way: str = "plain", resume: bool = False, **changes: Any
) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"read by {os.environ.get('RANK', '0')}"
    log.write_text("")
    rows = datasets.IterableDataset.from_generator(rows_of, gen_kwargs={"numbers": [0, 1, 2, 3], "log": str(log)})
    if way == "shuffled":
        rows = rows.shuffle(seed=4, buffer_size=5)
    if way == "unseeded":
        rows = rows.shuffle(buffer_size=5)
    if way == "mixed":
        rows = datasets.interleave_datasets([rows, rows.map(dict)], probabilities=[0.4, 0.6], seed=2)
    parts = {"train_dataset": rows, "callbacks": [Stop(stop)] if stop else []}
    settings = {**PLAIN, "max_steps": MANY, "per_device_train_batch_size": batch, **changes}
    run = runs.trainer(folder / "run", parts=parts, **settings)
    run.train(resume_from_checkpoint=resume or None)
    return {
        "weights": whole(run.model),
        "loss": runs.logged(run, "loss"),
        "examples": run.state.num_examples_seen,
        "read": log.read_text().split(),
    }


def together(count: int, folder: Path, *given: Any, **named: Any) -> list[dict[str, Any]]:
    return values(in_processes(count, folder, trained, folder, *given, **named))


def same_bits(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["loss"] == {**one["loss"], **other["loss"]}, "of the steps that are left"
    assert one["examples"] == other["examples"]
    assert runs.difference(one["weights"], other["weights"]) == 0.0


SPLIT = {"split_stream": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "split": SPLIT,
    "split, with workers": {**SPLIT, "dataloader_num_workers": 2},
    "split, FSDP with workers": {**SPLIT, "fsdp": True, "dataloader_num_workers": 2},
}
SLOW = pytest.mark.slow  # many starts of processes


@pytest.mark.parametrize("name", ["split", *(pytest.param(name, marks=SLOW) for name in SETTINGS if name != "split")])
def test_parts_of_a_stream_go_on_from_their_own_places(name: str, tmp_path: Path) -> None:
    """Stopped where both processes are in their second shards, where one has come to its end, and in the next pass."""
    straight = together(2, tmp_path / "straight", 2, **SETTINGS[name])
    for stop in (5, 6, 8):
        broken = tmp_path / f"broken {stop}"
        together(2, broken, 2, stop, **SETTINGS[name])
        resumed = together(2, broken, 2, resume=True, **SETTINGS[name])
        for one, other in zip(straight, resumed, strict=True):
            same_bits(one, other)
        if stop == 5:
            assert [one["read"][0] for one in resumed] == ["0:2", "1:3"], "their first shards are done with"


def as_before(straight: dict[str, Any], resumed: list[dict[str, Any]], tolerance: float = 1e-6) -> None:
    for one in resumed:
        assert straight["loss"] == pytest.approx({**straight["loss"], **one["loss"]}, rel=2e-5)
        assert straight["examples"] == one["examples"]
        assert runs.difference(straight["weights"], one["weights"]) < tolerance


@SLOW
def test_other_numbers_of_processes_read_the_same_parts(tmp_path: Path) -> None:
    """Two parts by one process, and by two each; then four parts by two processes in twice as many batches."""
    for stop in (5, 6):
        straight = together(2, tmp_path / f"straight {stop}", 2, **SPLIT)
        for count, batch in ((1, 4), (4, 1)):
            folder = tmp_path / f"{stop} to {count}"
            together(2, folder, 2, stop, **SPLIT)
            resumed = together(count, folder, batch, resume=True, **SPLIT)
            as_before(straight[0], resumed)
            assert {one["read"][0][2:] for one in resumed} <= {"2", "3"} or stop == 6
    straight = together(4, tmp_path / "straight of four", 1, **SPLIT)
    together(4, tmp_path / "of four", 1, 3, **SPLIT)
    resumed = together(2, tmp_path / "of four", 1, resume=True, gradient_accumulation_steps=2, **SPLIT)
    as_before(straight[0], resumed)


def test_what_would_be_another_run_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "two"
    together(2, folder, 2, 2, **SPLIT)
    for count, batch, changes, words in (
        (3, 2, SPLIT, "Start 2, or a number that divides it"),
        (1, 4, {}, "split_stream"),
        (1, 2, SPLIT, "examples per step"),
        (1, 4, {**SPLIT, "dataloader_drop_last": True}, "dataloader_drop_last"),
    ):
        ended = in_processes(count, folder, trained, folder, batch, resume=True, **changes)
        assert {one.error for one in ended} == {"CheckpointError"} and words in ended[0].words, (count, ended)


WAYS: dict[str, dict[str, Any]] = {
    "each reads all": {},
    "each reads all, with workers": {"dataloader_num_workers": 2},
    "the first reads": {"accelerator_config": {"dispatch_batches": True}},
}


@pytest.mark.parametrize("name", WAYS)
def test_whole_streams_go_on_from_their_state(name: str, tmp_path: Path) -> None:
    """Stopped in the third shard."""
    straight = together(2, tmp_path / "straight", 2, **WAYS[name])
    together(2, tmp_path / "broken", 2, 4, **WAYS[name])
    resumed = together(2, tmp_path / "broken", 2, resume=True, **WAYS[name])
    for place, (one, other) in enumerate(zip(straight, resumed, strict=True)):
        same_bits(one, other)
        assert other["read"][:1] in ([f"{place}:2"], [] if "the first" in name and place == 1 else None)


@pytest.mark.parametrize("way", ["shuffled", "mixed"])
def test_streams_in_an_order_by_seed(way: str, tmp_path: Path) -> None:
    """The rows of a shuffle buffer are read again; with a worker the order is the same."""
    straight = together(2, tmp_path / "straight", 2, way=way, **SPLIT)
    together(2, tmp_path / "broken", 2, 3, way=way, **SPLIT)
    resumed = together(2, tmp_path / "broken", 2, resume=True, way=way, dataloader_num_workers=1, **SPLIT)
    for one, other in zip(straight, resumed, strict=True):
        same_bits(one, other)


def test_an_order_without_a_seed_is_refused(tmp_path: Path) -> None:
    for changes in ({}, SPLIT, {**SPLIT, **WAYS["the first reads"]}):
        ended = in_processes(2, tmp_path, trained, tmp_path / "out", 2, way="unseeded", **changes)
        assert {one.error for one in ended} == {"SettingError"} and "shuffle(seed=...)" in ended[0].words, ended
    trained(tmp_path / "alone", 4, 2, way="unseeded")
    with pytest.raises(CheckpointError, match="order of the stream"):
        trained(tmp_path / "alone", 4, way="unseeded", resume=True)


def test_other_files_are_refused(tmp_path: Path) -> None:
    def on_files(count: int, **changes: Any) -> None:
        rows = tiny.class_rows(4)
        for number in range(count):
            datasets.Dataset.from_list(rows).to_json(tmp_path / f"rows-{number}.jsonl")
        stream = datasets.load_dataset("json", data_files=str(tmp_path / "*.jsonl"), split="train", streaming=True)
        run = runs.trainer(tmp_path / "out", parts={"train_dataset": stream}, save_strategy="steps", **changes)
        run.train(resume_from_checkpoint="auto")

    on_files(2, max_steps=1, save_steps=1)
    on_files(2, max_steps=2, save_steps=1)
    with pytest.raises(CheckpointError, match=r"files of the stream .*2 \(.*3 \("):
        on_files(3, max_steps=3)
