"""A fingerprint follows from the rows, and from nothing else."""

from __future__ import annotations

from typing import Any, ClassVar

import datasets
import numpy as np
import pytest
import tiny
import torch

from burnish.data.fingerprint import ROWS, fingerprint


def rows(count: int = 40) -> list[dict[str, Any]]:
    return [{**row, "text": f"row {number}", "weight": number / 7} for number, row in enumerate(tiny.class_rows(count))]


def test_equal_rows_have_one_fingerprint_however_they_are_held() -> None:
    plain = rows()
    table = datasets.Dataset.from_list(plain)
    backwards = [dict(reversed(row.items())) for row in plain]
    tensors = [{**row, "input_ids": torch.tensor(row["input_ids"])} for row in plain]
    arrays = [{**row, "input_ids": np.array(row["input_ids"], np.int32), "labels": np.int64(0)} for row in plain]
    arrays = [{**row, "labels": np.int64(plain[number]["labels"])} for number, row in enumerate(arrays)]
    formats = [table, table.with_format("torch"), table.with_format("numpy")]
    assert len({fingerprint(dataset) for dataset in (plain, tuple(plain), *formats, backwards, tensors, arrays)}) == 1
    assert fingerprint(plain) == fingerprint(rows())


@pytest.mark.parametrize("number", [0, 39])
@pytest.mark.parametrize(
    "change",
    [{"labels": 9}, {"input_ids": [5, 6]}, {"text": "another"}, {"weight": 0.5}, {"more": None}, {"text": ["row 0"]}],
    ids=str,
)
def test_other_content_has_another(number: int, change: dict[str, Any]) -> None:
    changed = rows()
    changed[number] = {**changed[number], **change}
    assert fingerprint(changed) != fingerprint(rows())


def test_another_order_and_another_number_have_another() -> None:
    assert len({fingerprint(rows()), fingerprint(rows()[::-1]), fingerprint(rows(41)), fingerprint([])}) == 4


def test_containers_are_told_apart() -> None:
    alike = ["ab", ["ab"], ["a", "b"], [["a"], "b"], {"a": "b"}, b"ab", [1, 2], [1.0, 2.0], [[1], [2]], [[1, 2]], None]
    prints = [fingerprint([{"x": value}]) for value in alike]
    assert len(set(prints)) == len(alike) - 1  # texts and bytes of the same content are one


def test_few_rows_are_read_and_objects_count_by_their_class() -> None:
    class Rows:
        read: ClassVar[list[int]] = []

        def __len__(self) -> int:
            return 100_000

        def __getitem__(self, number: int) -> Any:
            self.read.append(number)
            return {"picture": object(), "number": number}

    assert fingerprint(Rows()) == fingerprint(Rows())
    assert len(set(Rows.read)) == ROWS and {0, 99_999} <= set(Rows.read)
