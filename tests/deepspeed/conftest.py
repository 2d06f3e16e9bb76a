"""Tests with DeepSpeed, left out where it is not installed: `make test-deepspeed` installs it. Its processes are forked
from one that has imported everything and built what is compiled."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
import torch
from distributed import forked
from trainer import runs

_found = importlib.util.find_spec("deepspeed")
HERE = _found is not None and _found.origin is not None
collect_ignore_glob = [] if HERE else ["test_*.py"]


@pytest.fixture(autouse=True, scope="session")
def _imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["DS_ACCELERATOR"] = "cpu"
    torch.set_num_threads(1)
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

    ShareMemCommBuilder().load()  # minutes, the first time on a machine
    folder: Path = tmp_path_factory.mktemp("imported")
    run = runs.trainer(folder, max_steps=1, save_strategy="steps", save_steps=1)
    run.train()
    run.predict(run.train_dataset)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "LONGEST", 300.0)
