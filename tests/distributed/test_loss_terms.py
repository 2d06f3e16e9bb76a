"""Named terms of a loss, on several processes: those of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed.forked import in_processes, values
from trainer.test_loss_terms import parts_of, summed, terms_of


def found(folder: Path, function: Any, split: str) -> dict[str, Any]:
    return terms_of(folder, split=split, compute_loss_func=function)


@pytest.mark.parametrize("function", [parts_of, summed])
def test_the_terms_are_those_of_one_process(function: Any, tmp_path: Path) -> None:
    """37 and 13 rows: the last step leaves the processes unequal work."""
    alone = found(tmp_path / "alone", function, "8x1")
    for of_process in values(in_processes(2, tmp_path, found, tmp_path / "two", function, "4x1")):
        for key, value in alone.items():
            assert of_process[key] == pytest.approx(value, abs=2e-6), key
