"""Outputs of batches become whole arrays, in dataset order."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from burnish.core.errors import DataError
from burnish.evaluation.collect import Collector
from burnish.evaluation.room import BLOCK_BYTES, InMemory


def collected(*batches: Any, rows: list[list[int]] | None = None) -> Any:
    collector = Collector()
    for number, batch in enumerate(batches):
        collector.add(batch, rows[number] if rows else None)
    return collector.result()


def test_nested_structures_are_kept() -> None:
    def batch(start: int) -> Any:
        scores = torch.arange(start, start + 2)
        return (scores, {"b": [scores + 10], "a": None}, None)

    found = collected(batch(0), batch(2))
    assert isinstance(found, tuple) and found[2] is None and found[1]["a"] is None
    assert found[0].tolist() == [0, 1, 2, 3]
    assert found[1]["b"][0].tolist() == [10, 11, 12, 13]


def test_unequal_lengths_are_padded_on_the_right() -> None:
    found = collected(torch.ones(2, 3, 1), torch.ones(1, 1, 2))
    assert found.shape == (3, 3, 2)
    assert found[:, :, 0].tolist() == [[1, 1, 1], [1, 1, 1], [1, -100, -100]]
    assert found[:, :, 1].tolist() == [[-100] * 3, [-100] * 3, [1, -100, -100]]


def test_results_come_in_dataset_order() -> None:
    """Batches sorted by length, the longest first."""
    collector = Collector()
    collector.add((torch.tensor([[3, 3], [1, 1]]), torch.tensor([30, 10])), rows=[3, 1])
    collector.add((torch.tensor([[0], [2]]), torch.tensor([0, 20])), rows=[0, 2])
    tokens, labels = collector.result()
    assert tokens.tolist() == [[0, -100], [1, 1], [2, -100], [3, 3]]
    assert labels.tolist() == [0, 10, 20, 30]
    assert collector.count == 4


def test_an_example_that_came_twice_is_kept_once() -> None:
    collector = Collector()
    collector.add(torch.tensor([4, 2]), rows=[4, 2])
    collector.add(torch.tensor([0, 4]), rows=[0, 4])
    assert collector.result().tolist() == [0, 2, 4]
    assert collector.count == 3


def test_unknown_rows_stay_in_the_order_of_the_batches() -> None:
    assert collected(torch.tensor([5, 6]), torch.tensor([7]), rows=[[1, -1], [0]]).tolist() == [5, 6, 7]


def test_several_entries_of_an_example_move_together() -> None:
    """Two generated sequences for each example, and one score."""
    sequences, scores = collected(
        (torch.tensor([20, 21, 0, 1]), torch.tensor([2, 0])),
        (torch.tensor([10, 11]), torch.tensor([1])),
        rows=[[2, 0], [1]],
    )
    assert sequences.tolist() == [0, 1, 10, 11, 20, 21]
    assert scores.tolist() == [0, 1, 2]


def test_scalars_of_batches_become_an_array() -> None:
    losses, scores = collected((torch.tensor(0.5), torch.zeros(2)), (1.5, torch.zeros(1)), rows=[[2, 1], [0]])
    assert losses.tolist() == [0.5, 1.5]
    assert scores.shape == (3,)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (torch.float32, np.float32),
        (torch.bfloat16, np.float32),
        (torch.float16, np.float16),
        (torch.float64, np.float64),
        (torch.int64, np.int64),
        (torch.int32, np.int32),
        (torch.bool, np.bool_),
        (torch.uint8, np.uint8),
    ],
)
def test_dtypes(given: torch.dtype, kept: Any) -> None:
    assert collected(torch.ones(2, dtype=given), torch.ones(1, dtype=given)).dtype == kept


@pytest.mark.parametrize("given", [torch.bool, torch.uint8])
def test_padding_is_told_from_values(given: torch.dtype) -> None:
    assert collected(torch.ones(1, 2, dtype=given), torch.ones(1, 1, dtype=given)).tolist() == [[1, 1], [1, -100]]


def test_what_was_added_can_change_afterwards() -> None:
    buffer = torch.tensor([1, 2])
    array = buffer.numpy()
    collector = Collector()
    collector.add((buffer, array))
    buffer.zero_()
    assert [part.tolist() for part in collector.result()] == [[1, 2], [1, 2]]


def test_order_of_names_does_not_mix_arrays() -> None:
    found = collected(
        {"a": torch.tensor([1]), "b": torch.tensor([2])}, {"b": torch.tensor([4]), "a": torch.tensor([3])}
    )
    assert {name: values.tolist() for name, values in found.items()} == {"a": [1, 3], "b": [2, 4]}


def test_gradients_are_left_behind() -> None:
    assert collected(torch.ones(1, requires_grad=True) * 2).tolist() == [2]


@pytest.mark.parametrize("second", [None, (torch.ones(1),), torch.ones(1, 2)])
def test_another_structure_is_refused(second: Any) -> None:
    collector = Collector()
    collector.add(torch.ones(1))
    with pytest.raises(DataError, match="Batch 1 of the evaluation"):
        collector.add(second)


def test_nothing_added() -> None:
    collector = Collector()
    assert collector.result() is None
    assert collector.count == 0
    collector.add(None, rows=[0, 1])
    assert collector.result() is None
    assert collector.count == 2


def test_merged_from_elsewhere() -> None:
    """Two processes with every other batch, and an example that both had."""
    whole, ours, theirs = Collector(), Collector(), Collector()
    for number, width in enumerate((3, 5, 2, 4)):
        batch = {"a": torch.full((2, width), number), "b": torch.tensor([number, -number])}
        rows = [7 - 2 * number, 6 - 2 * number]
        whole.add(batch, rows)
        (ours, theirs)[number % 2].add(batch, rows)
    theirs.add({"a": torch.full((1, 3), 0), "b": torch.tensor([0])}, [7])
    ours.merge([pickle.loads(pickle.dumps(theirs.state()))])
    found, expected = ours.result(), whole.result()
    assert all(np.array_equal(found[name], expected[name]) for name in ("a", "b"))
    other = Collector()
    other.add(torch.ones(1))
    with pytest.raises(DataError, match="Batch 1"):
        other.merge([theirs.state()])


def test_copies_in_blocks_do_not_touch() -> None:
    blocks = InMemory()
    arrays = [np.arange(n, dtype=kind) for n, kind in ((3, "i1"), (5, "f8"), (BLOCK_BYTES // 8 + 1, "i8"), (2, "f2"))]
    copies = [blocks.put(array) for array in arrays]
    for copy, array in zip(map(np.asarray, copies), arrays, strict=True):
        assert np.array_equal(copy, array) and copy.dtype == array.dtype
    assert np.asarray(blocks.put(np.empty((0, 3)))).shape == (0, 3)
    assert blocks.put(np.array(["a", None], object)).tolist() == ["a", None]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_batches_that_wait_on_the_device() -> None:
    collector = Collector(batches_on_device=2)
    for number in range(3):
        collector.add(torch.full((2,), number, device="cuda"), rows=[2 * number, 2 * number + 1])
    assert collector.result().tolist() == [0, 0, 1, 1, 2, 2]
