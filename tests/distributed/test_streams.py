"""Streams on several processes go on from their own state: the same bits, and no shard is read again."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import tiny
from distributed.forked import in_processes, values
from distributed.test_fsdp import whole
from distributed.test_training import PLAIN
from trainer import runs

import burnish

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


class Stop(burnish.TrainerCallback):
    """Ends a run early, with a checkpoint."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.at:
            control.should_training_stop = control.should_save = True


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
        "read": Counter(log.read_text().split()),
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
    "split, FSDP": {**SPLIT, "fsdp": True},
    "split, FSDP with workers": {**SPLIT, "fsdp": True, "dataloader_num_workers": 2},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_parts_of_a_stream_go_on_from_their_own_places(name: str, tmp_path: Path) -> None:
    """Stopped where both processes are in their second shards, and where one has come to its end."""
    straight = together(2, tmp_path / "straight", 2, **SETTINGS[name])
    assert straight[0]["read"]["0:0"] == 2 * SHARDS[0] or "workers" not in name
    for stop in (5, 6):
        broken = tmp_path / f"broken {stop}"
        together(2, broken, 2, stop, **SETTINGS[name])
        resumed = together(2, broken, 2, resume=True, **SETTINGS[name])
        for one, other in zip(straight, resumed, strict=True):
            same_bits(one, other)
        again = [one["read"] - straight_of_pass(place) for place, one in enumerate(resumed)]
        assert not any(again), "more than what is left of this pass, and the next"


def straight_of_pass(place: int) -> Counter[str]:
    """What may be read from the second shard on: that shard, and the pass that follows."""
    first, second = place, place + 2
    return Counter({f"{place}:{first}": SHARDS[first], f"{place}:{second}": 2 * SHARDS[second]})
