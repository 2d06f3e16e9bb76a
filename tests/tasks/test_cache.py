"""What several processes need, one of them makes."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from burnish.tasks.cache import stored


def make(folder: Path, anew: bool) -> None:
    """Half a second of work, noted in a file, unless another process has done it."""

    def batches() -> Any:
        with (folder / "made").open("a") as file:
            file.write("x")
        time.sleep(0.5)
        return [pa.record_batch({"row": [1, 2]})]

    assert list(stored("key", batches, anew)["row"][:]) == [1, 2]


@pytest.mark.parametrize("anew", [False, True])
def test_processes_that_come_together_make_a_file_once(
    anew: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=make, args=(tmp_path, anew)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "made").read_text() == "x"
    make(tmp_path, anew)
    assert (tmp_path / "made").read_text() == ("xx" if anew else "x")
