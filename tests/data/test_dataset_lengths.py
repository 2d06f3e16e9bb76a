"""The lengths of a whole dataset are those of its rows, one by one."""

from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import pytest
import torch
from stepping import NoisyRows, rows

from burnish.data.dataset_lengths import lengths_of
from burnish.data.lengths import real_length

Rows = list[dict[str, Any]]

PADDED: Rows = [
    {"input_ids": [5, 6, 7, 0], "attention_mask": [1, 1, 1, 0], "labels": [5, -100]},
    {"input_ids": [0, 0, 5, 6], "attention_mask": [0, 0, 1, 1], "labels": []},
    {"input_ids": [], "attention_mask": [], "labels": [1, 2, 3]},
    {"input_ids": [5, 6, 7, 8], "attention_mask": [1, 0, 1, 1], "labels": [4]},
]
CHOICES: Rows = [
    {"input_ids": [[5, 6, 0], [5, 6, 7]], "attention_mask": [[1, 1, 0], [1, 1, 1]], "labels": 0},
    {"input_ids": [[5], [6, 7]], "attention_mask": [[1], [1, 1]], "labels": 1},
]
KINDS: dict[str, Rows] = {
    "padded": PADDED,
    "choices": CHOICES,
    "without a mask": [{"input_ids": row["input_ids"]} for row in PADDED],
    "without some masks": [{**row, "attention_mask": None} if i % 2 else row for i, row in enumerate(PADDED)],
    "classes": rows(23),
}


def one_by_one(dataset: Any, is_encoder_decoder: bool = False) -> list[int | None]:
    return [real_length(dataset[number], is_encoder_decoder) for number in range(len(dataset))]


@pytest.mark.parametrize("is_encoder_decoder", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_same_as_row_by_row(kind: str, is_encoder_decoder: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In lists and in tables, also when a table is read in several parts."""
    monkeypatch.setattr("burnish.data.table.CHUNK", 3)
    monkeypatch.setattr("burnish.data.dataset_lengths.CHUNK", 3)
    expected = one_by_one(KINDS[kind], is_encoder_decoder)
    assert None not in expected
    table = datasets.Dataset.from_list(KINDS[kind])
    for dataset in (KINDS[kind], tuple(KINDS[kind]), table, table.with_format("torch")):
        assert lengths_of(dataset, is_encoder_decoder) == expected


def test_rows_that_were_chosen_and_shuffled() -> None:
    table = datasets.Dataset.from_list(rows(40))
    for changed in (table.shuffle(seed=1), table.select([7, 3, 3, 21]), datasets.concatenate_datasets([table, table])):
        assert lengths_of(changed) == one_by_one(changed)


def test_rows_of_arrays() -> None:
    for kind in (np.array, torch.tensor):
        made = [{name: kind(row[name]) for name in ("input_ids", "attention_mask")} for row in PADDED[:2]]
        assert lengths_of(made) == [3, 2]


def test_a_column_of_lengths() -> None:
    table = datasets.Dataset.from_list([{"text": "a", "length": 7}, {"text": "b", "length": 2}])
    assert lengths_of(table, length_column="length") == [7, 2]
    assert lengths_of(table, length_column="other") is None


def test_a_format_that_hides_the_mask() -> None:
    table = datasets.Dataset.from_list(PADDED).with_format("numpy", columns=["input_ids"])
    assert lengths_of(table) == one_by_one(table) == [4, 4, 0, 4]


def test_datasets_whose_lengths_are_not_known() -> None:
    """Rows that are computed, each maybe at random; rows without tokens."""
    assert lengths_of(NoisyRows(3)) is None
    assert lengths_of(datasets.Dataset.from_list(rows(3)).with_transform(lambda batch: batch)) is None
    for missing in ([{"input_ids": [5]}, {"input_ids": None}], [{"x": [1.0]}], [(1, 2)]):
        assert lengths_of(missing) is None
    assert lengths_of(datasets.Dataset.from_list([{"input_ids": [5]}, {"input_ids": None}])) is None
    assert lengths_of(datasets.Dataset.from_list([{"x": [1.0]}])) is None


def test_no_rows() -> None:
    assert lengths_of([]) == []
    assert lengths_of(datasets.Dataset.from_list(rows(2)).select([])) == []
