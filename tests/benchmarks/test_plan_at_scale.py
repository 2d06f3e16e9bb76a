"""The simulation of a plan over many processes runs, and its way of sharing is the more equal one."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
import source_tree


def test_shares_by_work_are_more_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(source_tree.ROOT / "benchmarks"))
    out = tmp_path / "figures.json"
    words = ["plan_at_scale.py", "--processes", "64", "--rows", "5000", "--steps", "2", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    importlib.import_module("plan_at_scale").main()
    found = json.loads(out.read_text())
    for what in ("tokens", "cost"):
        assert 1 <= found[f"by work, {what}"]["mean"] < found[f"by count, {what}"]["mean"]
    assert "64 processes, 5,000 rows, steps of 512 examples" in capsys.readouterr().out
