"""Predictions that would not fit into memory go to a file without a name, and are the same."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from burnish.core.errors import SettingError
from burnish.evaluation.collect import Collector
from burnish.evaluation.room import Room, free_memory

WIDTHS = (4, 9, 2, 6)


def batch(number: int) -> Any:
    draw = torch.Generator().manual_seed(number)
    scores = torch.randn(5, WIDTHS[number], 3, generator=draw, dtype=torch.float64)
    return scores, {"label": torch.arange(5, dtype=torch.int8) + number, "none": None, "empty": torch.zeros(5, 0)}


def gathered(room: Room | None) -> Any:
    """Four batches in another order than that of the dataset, one row twice."""
    collector = Collector(room=room)
    for number in range(4):
        first = 15 - 5 * number
        collector.add(batch(number), [first + 1, first, first + 2, first + 3, first + 4])
    collector.add(batch(0), [16, 15, 17, 18, 19])
    return collector.result()


@pytest.mark.parametrize("most", [10, 1200])
def test_the_same_from_disk(tmp_path: Path, most: int, caplog: pytest.LogCaptureFixture) -> None:
    """From the first batch on, by what all rows would take; or later, once it is too much."""
    with caplog.at_level(logging.WARNING, "burnish"):
        found = gathered(Room(rows=20 if most == 10 else None, folder=tmp_path, most=most))
    expected = gathered(None)
    assert np.array_equal(found[0], expected[0]) and found[0].dtype == np.float64
    assert np.array_equal(found[1]["label"], expected[1]["label"]) and found[1]["none"] is None
    assert found[1]["empty"].shape == (20, 0)
    assert isinstance(found[0], np.memmap) and not isinstance(expected[0], np.memmap)
    found[0][0] = 1.0  # it can be written to, like any array
    (record,) = caplog.records
    assert str(tmp_path) in record.getMessage() and "preprocess_logits_for_metrics" in record.getMessage()
    assert list(tmp_path.iterdir()) == [], "the file has no name, and is gone with the array"


def test_what_fits_stays_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not isinstance(gathered(Room(rows=20, folder=tmp_path))[0], np.memmap)
    assert caplog.records == []


def test_the_estimate_names_rows_and_shapes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector(room=Room(rows=1000, folder=tmp_path, most=2**20))
    with caplog.at_level(logging.WARNING, "burnish"):
        collector.add(torch.zeros(2, 7, 50))
    said = caplog.records[0].getMessage()
    assert "1,000 rows (float32 (7, 50) each) take about 1.3 MiB, and 1.0 MiB of memory" in said


def test_neither_memory_nor_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said with the first batch, not after hours."""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(0, 0, 100))
    collector = Collector(room=Room(rows=1000, folder=tmp_path, most=10))
    with pytest.raises(SettingError, match=r"1,000 rows.*MiB left.*batch_eval_metrics=True.*prediction_loss_only=True"):
        collector.add(torch.zeros(2, 7, 50))


def test_a_folder_that_is_not_there() -> None:
    collector = Collector(room=Room(rows=100, folder="no/such/folder", most=1))
    collector.add(torch.arange(3))
    assert collector.result().tolist() == [0, 1, 2]


def test_free_memory() -> None:
    found = free_memory()
    if Path("/proc/meminfo").exists():
        assert found is not None
    assert found is None or 2**20 < found < 2**50
