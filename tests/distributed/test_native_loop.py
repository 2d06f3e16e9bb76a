"""The loop written by hand takes the same steps alone and through accelerate, and goes on where it was."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import source_tree
import torch
from distributed.forked import in_processes, values

import burnish


def example() -> Any:
    path = source_tree.ROOT / "examples" / "native_loop.py"
    spec = importlib.util.spec_from_file_location("native_loop", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def through_accelerate(folder: Path) -> list[float]:
    from accelerate import Accelerator

    found: list[float] = example().train(str(folder), Accelerator(cpu=True))
    return found


def test_alone_and_in_two_processes(tmp_path: Path) -> None:
    loop = example()
    alone = loop.train(str(tmp_path / "alone"))
    assert len(alone) == loop.PASSES * 16 and alone[-1] < 0.5 * alone[0]
    for found in values(in_processes(2, tmp_path, through_accelerate, tmp_path / "together")):
        assert found == pytest.approx(alone, abs=1e-4)


def test_it_goes_on_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = example()
    whole = loop.train(str(tmp_path / "whole"))
    monkeypatch.setattr(loop, "PASSES", 1)
    first = loop.train(str(tmp_path / "parts"))
    monkeypatch.setattr(loop, "PASSES", 3)
    assert first + loop.train(str(tmp_path / "parts")) == whole
    assert loop.train(str(tmp_path / "parts")) == []
    saved = loop.transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "parts" / "checkpoint-48")
    assert saved.num_labels == 2


def test_a_stream_is_refused() -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(())

    with pytest.raises(burnish.core.errors.SettingError, match="this one is a stream"):
        burnish.TrainingSteps(Stream(), list, 4, torch.nn.Linear(1, 1))
