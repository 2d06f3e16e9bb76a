"""The order of a stream is that of its seeds, in a worker too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader, IterableDataset

from burnish.data.stream_order import files_of, order_of
from burnish.data.streaming import numbered


def table() -> datasets.IterableDataset:
    return datasets.Dataset.from_dict({"x": list(range(24))}).to_iterable_dataset(num_shards=4)


STREAMS: dict[str, Callable[[Any], Any]] = {
    "shuffled": lambda seed: table().shuffle(seed=seed, buffer_size=5).map(lambda row: row),
    "mixed": lambda seed: datasets.interleave_datasets([table(), table()], probabilities=[0.3, 0.7], seed=seed),
}


class Numbered(IterableDataset[Any]):
    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[Any]:
        return numbered(self.stream, 0, 0)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_worker_reads_the_same_order(name: str, epoch: int) -> None:
    stream = STREAMS[name](3)
    stream.set_epoch(epoch)
    alone = [[number, row] for number, row in numbered(stream, 0, epoch)]
    assert list(DataLoader(Numbered(stream), batch_size=None, num_workers=1)) == alone
    assert [row["x"] for _, row in alone] == [row["x"] for row in stream] != [row["x"] for row in table()]


@pytest.mark.parametrize("name", STREAMS)
def test_an_order_is_known_by_its_seeds(name: str) -> None:
    make = STREAMS[name]
    assert order_of(make(3)) == order_of(make(3)) and len({order_of(make(seed)) for seed in (3, 4, None, None)}) == 4


def test_an_order_of_what_is_not_shuffled() -> None:
    assert len({order_of(table()), order_of(table().map(lambda row: row)), order_of([1])}) == 1
    assert len({order_of(split_dataset_by_node(table(), index, 2)) for index in (0, 1)} - {order_of(table())}) == 2


def test_a_stream_of_files_is_known_by_their_names(tmp_path: Path) -> None:
    def stream(*names: str) -> datasets.IterableDataset:
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text('{"x": 1}\n')
        files = [str(tmp_path / name) for name in names]
        return datasets.load_dataset("json", data_files=files, split="train", streaming=True)

    found = files_of(stream("here/a.jsonl", "here/b.jsonl").map(lambda row: row))
    assert found == files_of(stream("there/a.jsonl", "there/b.jsonl")), "wherever they are"
    assert len({found, files_of(stream("a.jsonl")), files_of(stream("b.jsonl", "a.jsonl"))}) == 3
    assert files_of(table()) is None and files_of([1]) is None
