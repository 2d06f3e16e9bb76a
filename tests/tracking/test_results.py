"""The results of a run, as a table and as files that any JSON reader takes."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burnish.core.progress import TrainerState
from burnish.tracking import results


class Run:
    """As much of a trainer as the functions ask for."""

    log_metrics = results.log_metrics
    save_metrics = results.save_metrics
    save_state = results.save_state

    def __init__(self, folder: Path, first: bool = True) -> None:
        self.args = type("Args", (), {"output_dir": str(folder)})()
        self.state = TrainerState(global_step=3, log_history=[{"loss": 0.5, "step": 3}])
        self.is_world_process_zero = lambda: first


METRICS: dict[str, Any] = {
    "train_loss": 0.123456,
    "train_runtime": 3725.5,
    "train_samples": 8530,
    "total_flos": 3.0 * 2**30,
    "train_mem_cpu_alloc_delta": 5 * 2**20,
}


def test_metrics_are_formatted_for_reading() -> None:
    assert results.metrics_format(METRICS) == {
        "train_loss": 0.1235,
        "train_runtime": "1:02:05.50",
        "train_samples": 8530,
        "total_flos": "3GF",
        "train_mem_cpu_alloc_delta": "5MB",
    }
    assert results.metrics_format({"eval_runtime": 59.999}) == {"eval_runtime": "0:01:00.00"}


def test_the_table_is_aligned_and_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run(tmp_path).log_metrics("train", METRICS)
    title, *rows = capsys.readouterr().out.splitlines()
    assert title == "***** train metrics *****"
    assert [row.split()[0] for row in rows] == sorted(METRICS)
    assert len({row.index("=") for row in rows}) == 1
    assert len({len(row) for row in rows}) == 1
    Run(tmp_path).log_metrics("eval", {})


def test_files_hold_one_split_each_and_all_together(tmp_path: Path) -> None:
    run = Run(tmp_path / "out")
    run.save_metrics("train", {"train_loss": np.float32(0.5)})
    run.save_metrics("eval", {"eval_matrix": np.eye(2), "eval_loss": math.nan})
    run.save_metrics("test", {"test_loss": 0.25}, combined=False)
    read = {path.name: json.loads(path.read_text()) for path in (tmp_path / "out").iterdir()}
    assert read == {
        "train_results.json": {"train_loss": 0.5},
        "eval_results.json": {
            "eval_matrix": [[1, 0], [0, 1]],
            "eval_loss": None,
            "nonfinite": {"eval_loss": "nan"},
        },
        "test_results.json": {"test_loss": 0.25},
        "all_results.json": {
            "train_loss": 0.5,
            "eval_matrix": [[1, 0], [0, 1]],
            "eval_loss": None,
            "nonfinite": {"eval_loss": "nan"},
        },
    }
    run.save_metrics("eval", {"eval_loss": 0.75})
    everything = json.loads((tmp_path / "out" / "all_results.json").read_text())
    assert everything["eval_loss"] == 0.75
    assert "nonfinite" not in everything


def test_the_state_is_one_that_transformers_reads(tmp_path: Path) -> None:
    from transformers import TrainerState as Theirs

    Run(tmp_path / "out").save_state()
    assert Theirs.load_from_json(str(tmp_path / "out" / "trainer_state.json")).global_step == 3


def test_other_processes_do_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path, first=False)
    run.log_metrics("eval", {"eval_loss": 0.5})
    run.save_metrics("eval", {"eval_loss": 0.5})
    run.save_state()
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


def test_speed_has_the_known_keys() -> None:
    found = results.speed_metrics("train", time.time() - 2, num_samples=100, num_steps=10, num_tokens=1000)
    assert list(found) == [
        "train_runtime",
        "train_samples_per_second",
        "train_steps_per_second",
        "train_tokens_per_second",
    ]
    seconds = found["train_runtime"]
    assert seconds >= 2
    assert found["train_samples_per_second"] == pytest.approx(100 / seconds, rel=1e-2)
    assert list(results.speed_metrics("eval", time.time() - 2)) == ["eval_runtime"]
