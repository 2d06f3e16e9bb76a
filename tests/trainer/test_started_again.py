"""A run whose launcher starts it again goes on; no other run is taken for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from trainer import runs

from burnish.checkpoint.run_manifest import FAILED, FINISHED, RunManifest
from burnish.run.resuming import has_begun, wanted


@pytest.fixture(autouse=True)
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-7")


def left(folder: Path, **changes: Any) -> None:
    """A run that an earlier process has left there."""
    run = runs.trainer(folder, max_steps=4, save_strategy="steps", save_steps=2)
    run.train()
    manifest = RunManifest.read(folder)
    assert manifest is not None and manifest.process["launcher"] == "job-7"
    manifest.process["pid"] = -1
    for name, value in {"state": FAILED, **changes}.items():
        setattr(manifest, name, value)
    manifest.write(folder)


def test_it_goes_on_whatever_it_was_asked_to_begin_with(tmp_path: Path) -> None:
    left(tmp_path)
    assert wanted(None, tmp_path) == wanted("elsewhere/checkpoint-9", tmp_path) == "auto"
    run = runs.trainer(tmp_path, max_steps=6)
    run.train()
    manifest = RunManifest.read(tmp_path)
    assert manifest is not None and [one["step"] for one in manifest.resumed] == [4]


def test_not_the_run_of_another_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left(tmp_path)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-8")
    assert not has_begun(tmp_path)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # the default of torchrun: then its process counts
    assert not has_begun(tmp_path)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    assert not has_begun(tmp_path)


def test_not_one_that_has_finished(tmp_path: Path) -> None:
    left(tmp_path, state=FINISHED)
    assert not has_begun(tmp_path)


def test_not_a_run_of_this_very_process(tmp_path: Path) -> None:
    left(tmp_path, process=_process())
    assert not has_begun(tmp_path)


def _process() -> dict[str, Any]:
    from burnish.checkpoint.process import this_process

    assert os.getpid() == this_process()["pid"]
    return {**this_process(), "launcher": "job-7"}
