"""A plan against the peak of a real run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ACCURACY = Path(__file__).resolve().parents[2] / "benchmarks" / "plan_accuracy.py"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from /proc")
def test_a_real_run_takes_what_was_planned() -> None:
    command = [sys.executable, str(ACCURACY), "--only", "llama 512 × 8, 8 × 256, SGD"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "farthest off" in done.stdout
