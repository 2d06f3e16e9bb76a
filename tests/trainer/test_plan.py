"""Which examples form which step, from settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
import tiny
import torch
from trainer import runs

from burnish.core.errors import SettingError
from burnish.data.microbatches import Budget
from burnish.data.packing import PackedPlan, bins_of
from burnish.data.plan import Plan
from burnish.run.plan import plan_for, within_bins


class Computed(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 18

    def __getitem__(self, number: int) -> Any:
        return {**tiny.class_rows(18)[number], "drawn": torch.rand(())}


def grouped(folder: Path, dataset: Any) -> Any:
    settings = {"train_sampling_strategy": "group_by_length", "per_device_train_batch_size": 6}
    run = runs.trainer(folder, parts={"train_dataset": dataset}, **settings)
    return [plan_for(run, run.args).rows(0, step) for step in range(3)]


def test_rows_grouped_by_length(tmp_path: Path) -> None:
    """From lists, tables and rows that are computed; the global generators are left alone."""
    rows = tiny.class_rows(18)
    steps = grouped(tmp_path, rows)
    spread = [max(map(tiny.length_of, step)) - min(map(tiny.length_of, step)) for step in steps]
    assert max(spread) < tiny.MAX_LENGTH / 2
    assert grouped(tmp_path, datasets.Dataset.from_list(rows)) == steps
    before = torch.get_rng_state()
    assert grouped(tmp_path, Computed()) == steps
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_grouped_by_a_column_that_the_model_does_not_take(tmp_path: Path) -> None:
    rows = [{**row, "length": number} for number, row in enumerate(tiny.class_rows(18))]
    steps = grouped(tmp_path, datasets.Dataset.from_list(rows))
    assert [sorted(step) for step in steps] == [list(range(12, 18)), list(range(6, 12)), list(range(6))]


def test_rows_without_a_length_cannot_be_grouped(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="group_by_length"):
        grouped(tmp_path, [{"x": [1.0]}] * 3)


def test_a_budget_of_rows_is_one_of_the_tokens_of_their_bins() -> None:
    """Where a batch is what is known to fit: 4 rows, or 4 bins of 10 tokens."""
    plan = PackedPlan.of(bins_of(tiny.class_rows(9), 10), 4, 1, seed=1)
    by_rows = Budget(10**9, 7, rows=4)
    assert within_bins(by_rows, plan, 4) == Budget(40, 7)
    assert within_bins(Budget(30, 7, rows=4), plan, 4) == Budget(30, 7)
    for unchanged in (None, Budget(1024, 64)):
        assert within_bins(unchanged, plan, 4) == unchanged
    assert within_bins(by_rows, Plan(9, 4, 1, lambda epoch: range(9)), 4) == by_rows
