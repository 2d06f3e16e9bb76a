from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from task_files import reviews, write_csv

from burnish.core.errors import DataError
from burnish.tasks.recipe import DataRequest
from burnish.tasks.splits import held_out, read_splits, repeated_rows


def test_files_and_limits(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", reviews(12))
    splits = read_splits(DataRequest(train_file=file, test_file=file, max_train_samples=5))
    assert splits.validation is None and splits.train is not None and splits.test is not None
    assert splits.train.rows.to_list() == reviews(12)[:5]
    assert len(splits.test.rows) == 12


def test_no_data_at_all() -> None:
    with pytest.raises(DataError, match=r"--train_file"):
        read_splits(DataRequest())


def test_a_share_is_held_out_of_each_class() -> None:
    classes = [0] * 80 + [1] * 20
    aside = held_out(100, 0.1, 7, classes)
    assert aside == sorted(set(aside)) == held_out(100, 0.1, 7, classes) != held_out(100, 0.1, 8, classes)
    assert Counter(classes[row] for row in aside) == {0: 8, 1: 2}


@pytest.mark.parametrize(("num_rows", "share"), [(4, 0.01), (4, 0.99), (4, 1.5), (4, -0.1)])
def test_a_share_that_leaves_nothing(num_rows: int, share: float) -> None:
    with pytest.raises(DataError, match=f"validation_split={share}"):
        held_out(num_rows, share, 0)


def test_repeated_rows() -> None:
    assert repeated_rows([("a",), ("b",)], [("b",), ("c",), ("b",)]) == 2
