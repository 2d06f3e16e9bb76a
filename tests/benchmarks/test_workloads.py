"""The benchmarks start, and what they compare trains alike. Nothing is timed here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import source_tree


def losses(library: str, folder: Path) -> list[float]:
    """Of three steps of the smallest workload, without dropout."""
    out = folder / f"{library}.json"
    script = source_tree.ROOT / "benchmarks" / "overhead.py"
    flags = ["--library", library, "--steps", "3", "--dropout", "0", "--logging_steps", "1", "--out", str(out)]
    done = subprocess.run([sys.executable, str(script), *flags], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(out.read_text())
    assert report["cpu_seconds"] > 0
    return report["losses"]


@pytest.mark.slow
def test_a_plain_loop_and_burnish_train_alike(tmp_path: Path) -> None:
    plain, ours = losses("bare", tmp_path), losses("burnish", tmp_path)
    assert len(plain) == 3
    assert ours == pytest.approx(plain, abs=1e-4)
