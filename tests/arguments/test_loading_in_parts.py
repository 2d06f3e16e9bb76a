"""What arguments hold so that transformers loads models in parts: nothing where nothing is divided."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainer import runs

from burnish.arguments.loading_in_parts import HELD


@pytest.mark.parametrize("config", [None, {"zero_optimization": {"stage": 3}}, {"zero_optimization": {"stage": 2}}])
def test_one_process_holds_nothing(config: dict | None, tmp_path: Path) -> None:
    args = runs.arguments(tmp_path, deepspeed=config)
    assert not hasattr(args, HELD)
