"""A run that ends before its last step says the command that goes on, and that command does."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burnish.checkpoint import files
from burnish.cli.main import main
from burnish.core import run_clock
from burnish.core.events import TrainerCallback
from burnish.trainer import Trainer


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Has something done at a step of the next run."""

    def plan(step: int, act: Callable[[], None]) -> None:
        class Acts(TrainerCallback):
            def on_step_begin(self, args: Any, state: Any, control: Any, **details: Any) -> None:
                if state.global_step == step:
                    act()

        begin = Trainer.__init__

        def with_it(self: Any, *args: Any, **parts: Any) -> None:
            begin(self, *args, **{**parts, "callbacks": [Acts()]})

        monkeypatch.setattr(Trainer, "__init__", with_it)

    return plan


def command_in(text: str) -> list[str]:
    """The words after `burnish` in the command that a run said last."""
    line = [line for line in text.splitlines() if line.strip().startswith("burnish train ")][-1]
    return shlex.split(line)[1:]


def state_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "run.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 138), (signal.SIGINT, 130)], ids=str
)
def test_a_signal(
    number: int, code: int, at_step: Any, train_words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    at_step(2, lambda: os.kill(os.getpid(), number))
    if number == signal.SIGINT:
        assert main(train_words) == code
    else:
        with pytest.raises(SystemExit) as end:
            main(train_words)
        assert end.value.code == code
    said = capfd.readouterr().err
    assert "The same command goes on from checkpoint-3:" in said
    assert command_in(said) == train_words
    assert state_of(tmp_path / "out")["state"] == "stopped"
    monkeypatch.undo()
    assert main(command_in(said)) == 0
    assert "from checkpoint-3" in capfd.readouterr().out
    assert state_of(tmp_path / "out")["state"] == "finished"


def test_the_command_does_not_start_anew_nor_go_back(
    at_step: Any, train_words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Where the first one moved a folder aside, or went on from a checkpoint that it named."""
    assert main([*train_words, "--max_steps", "1"]) == 0
    capfd.readouterr()
    at_step(2, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        main([*train_words, "--overwrite_output_dir"])
    said = capfd.readouterr().err
    assert "This command goes on from checkpoint-3:" in said
    monkeypatch.undo()
    at_step(5, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        main([*command_in(said), "--resume_from_checkpoint", str(tmp_path / "out" / "checkpoint-3")])
    captured = capfd.readouterr()
    assert "from checkpoint-3" in captured.out and "goes on from checkpoint-6:" in captured.err
    monkeypatch.undo()
    assert main(command_in(captured.err)) == 0
    assert "from checkpoint-6" in capfd.readouterr().out
    assert (tmp_path / "out.1").is_dir() and not (tmp_path / "out.2").exists()


def test_before_anything_is_saved(
    at_step: Any, train_words: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise KeyboardInterrupt  # within a step: nothing can be saved

    at_step(0, fail)
    monkeypatch.setattr("burnish.run.saving.Saving.save", lambda self: None)
    assert main(train_words) == 130
    assert "starts anew, since nothing was saved yet" in capfd.readouterr().err


def test_max_time(
    at_step: Any, train_words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """An ordinary end: exit code 0, a model and its numbers; and the same command goes on."""
    now = [0.0]
    monkeypatch.setattr(run_clock, "now", lambda: now[0])
    at_step(3, lambda: now.__setitem__(0, 89 * 60.0))
    words = [*train_words, "--max_time", "90m"]
    assert main(words) == 0
    captured = capfd.readouterr()
    assert "max_time=1h 30m: stopping at step 4 of 8" in caplog.text
    assert "not at its end (max_time)" in captured.out and "The same command goes on from" in captured.out
    assert command_in(captured.out) == words
    manifest = state_of(tmp_path / "out")
    assert manifest["state"] == "stopped" and "eval_accuracy" in manifest["result"]["metrics"]
    assert (tmp_path / "out" / "model.safetensors").is_file()
    monkeypatch.undo()
    assert main(words) == 0
    assert state_of(tmp_path / "out")["state"] == "finished"


def test_a_bad_time(train_words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*train_words, "--max_time", "soon"]) == 2
    assert "'2h', '90m', '1d6h'" in capfd.readouterr().err


@pytest.mark.parametrize("model_fits", [True, False])
def test_no_last_checkpoint(
    model_fits: bool, train_words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    sync = files.sync

    def full(path: Path) -> None:
        if "checkpoint-8-" in str(path) or (not model_fits and ".staging-model-" in str(path)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        sync(path)

    monkeypatch.setattr(files, "sync", full)
    assert main(train_words) == 1
    said = capfd.readouterr().err
    assert "No space left" in said and "Make room on the disk" in said and "goes on from checkpoint-4" in said
    assert (f"The model itself is in {tmp_path / 'out'}" in said) == model_fits
    assert (tmp_path / "out" / "model.safetensors").is_file() == model_fits
    assert state_of(tmp_path / "out")["state"] == "failed"
    monkeypatch.undo()
    assert main(command_in(said)) == 0
    assert state_of(tmp_path / "out")["state"] == "finished"
