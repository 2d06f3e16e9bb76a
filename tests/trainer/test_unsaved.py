"""A run fails only where no good final state could be written."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer import runs

import burnish
from burnish.checkpoint import files, find, layout
from burnish.core.errors import UnsavedError
from burnish.core.progress import TrainerState

FAULTS = {"no space": errno.ENOSPC, "input/output error": errno.EIO, "read only": errno.EROFS}


class Ended(burnish.TrainerCallback):
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **details: Any) -> None:
        self.events.append("end")


class Disk:
    """Syncing a file of these checkpoints fails, so many times each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, times: dict[int, int]) -> None:
        sync = files.sync

        def failing(path: Path) -> None:
            for step, left in times.items():
                if f"{layout.folder_name(step)}-" in str(path) and left:
                    times[step] -= 1
                    raise OSError(number, os.strerror(number), str(path))
            sync(path)

        monkeypatch.setattr(files, "sync", failing)


def run(folder: Path, *callbacks: Any, **settings: Any) -> Any:
    usual = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2}
    return runs.trainer(folder, parts={"callbacks": list(callbacks)}, **{**usual, **settings})


def steps(folder: Path) -> list[int | None]:
    return [layout.step_of(path) for path in find.checkpoints(folder)]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("save_async", [True, False])
def test_a_failure_in_between_is_a_warning(
    fault: str, save_async: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Disk(monkeypatch, FAULTS[fault], {2: 9, 4: 9})
    run(tmp_path, save_async=save_async).train()
    assert steps(tmp_path) == [6]
    assert caplog.text.count("was not saved") == 2


def test_the_last_one_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Disk(monkeypatch, errno.ENOSPC, {6: 1})
    run(tmp_path).train()
    assert steps(tmp_path) == [2, 4, 6]
    assert "tried once more" in caplog.text


def test_one_that_failed_before_the_end_of_a_run_that_saves_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved by passes: the run ends within one, at a state that was not due to be saved."""
    asked = {"save_strategy": "no"}

    class Asks(burnish.TrainerCallback):
        def on_step_end(self, args: Any, state: TrainerState, control: Any, **details: Any) -> None:
            control.should_save |= state.global_step == 3

    Disk(monkeypatch, errno.EIO, {3: 1})
    run(tmp_path, Asks(), **asked).train()
    assert steps(tmp_path) == [6]


@pytest.mark.parametrize("fault", FAULTS)
def test_no_good_final_state_is_an_error_at_the_very_end(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = run(tmp_path / "straight")
    straight.train()
    Disk(monkeypatch, FAULTS[fault], {6: 9})
    ended = Ended()
    trainer = run(tmp_path / "run", ended)
    with pytest.raises(UnsavedError) as raised:
        trainer.train()
    told = str(raised.value)
    assert os.strerror(FAULTS[fault]) in told and "trainer.save_model(" in told and "resume_from_checkpoint" in told
    assert ended.events == ["end"] and trainer.state.global_step == 6
    assert runs.difference(straight.model, trainer.model) == 0.0
    assert steps(tmp_path / "run") == [2, 4]
    monkeypatch.undo()
    trainer.save_model(str(tmp_path / "elsewhere"))
    assert (tmp_path / "elsewhere" / "model.safetensors").is_file()
    assert json.loads((tmp_path / "run" / layout.RUN).read_text())["state"] == "failed"
    again = run(tmp_path / "run")
    again.train(resume_from_checkpoint="auto")
    assert runs.difference(straight.model, again.model) == 0.0


def test_the_best_weights_are_loaded_before_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tiny

    Disk(monkeypatch, errno.ENOSPC, {6: 9})
    scores = {2: 0.9, 4: 0.5, 6: 0.1}
    trainer = run(
        tmp_path, eval_strategy="steps", eval_steps=2, load_best_model_at_end=True, metric_for_best_model="score",
        greater_is_better=True,
    )  # fmt: skip
    trainer.eval_dataset = tiny.class_rows(5)
    trainer.compute_metrics = lambda prediction: {"score": scores[trainer.state.global_step]}
    with pytest.raises(UnsavedError):
        trainer.train()
    from safetensors.torch import load_file

    saved = load_file(tmp_path / "checkpoint-2" / "model.safetensors")
    assert all(torch.equal(weight, saved[name]) for name, weight in trainer.model.state_dict().items())


def test_a_signal_tries_once_more_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import signal

    class Signals(burnish.TrainerCallback):
        def on_step_end(self, args: Any, state: TrainerState, control: Any, **details: Any) -> None:
            if state.global_step == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    Disk(monkeypatch, errno.EIO, {3: 1})
    trainer = run(tmp_path, Signals())
    with caplog.at_level(logging.WARNING), pytest.raises(SystemExit) as end:
        trainer.train()
    assert end.value.code == 128 + signal.SIGTERM
    assert steps(tmp_path) == [2, 3]
    assert "SIGTERM stopped the run after step 3 of 6; it is saved" in caplog.text
    state = json.loads((tmp_path / "checkpoint-3" / layout.BURNISH).read_text())["state"]
    assert state["stop_reason"] == "SIGTERM"
