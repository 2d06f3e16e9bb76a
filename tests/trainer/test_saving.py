"""Checkpoints are written behind the training, and nothing is lost by it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from trainer import runs

import burnish
from burnish.checkpoint import copies, store
from burnish.checkpoint.verify import problem_with
from burnish.core.progress import TrainerState


class Gate:
    """Holds writes back until `open` is set; those of the steps in `broken` fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.begun = threading.Event(), list[int]()
        self.broken: set[int] = set()
        self.for_ever = False
        self.threads: list[threading.Thread] = []
        write = store.write

        def held_back(output_dir: Any, step: int, snapshot: Any) -> Path:
            self.begun.append(step)
            self.threads.append(threading.current_thread())
            assert self.open.wait(30)
            if step in self.broken:
                self.broken -= set() if self.for_ever else {step}
                with store.told_as(Path(output_dir) / f"checkpoint-{step}"):
                    raise OSError(28, "No space left on device")
            return write(output_dir, step, snapshot)

        monkeypatch.setattr(store, "write", held_back)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    monkeypatch.setattr(copies, "WORTH_A_COPY", 0)
    made = Gate(monkeypatch)
    yield made
    made.open.set()


class Seen(burnish.TrainerCallback):
    """Steps that ended, with what was on the disk; something may be done at one of them."""

    def __init__(self, at: dict[int, Any] | None = None) -> None:
        self.at, self.ended = at or {}, []

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **details: Any) -> None:
        self.ended.append((state.global_step, on_disk(Path(args.output_dir))))
        self.at.get(state.global_step, lambda: None)()


class Saves(burnish.TrainerCallback):
    def __init__(self) -> None:
        self.seen: list[tuple[int, bool, bool]] = []

    def on_save(self, args: Any, state: TrainerState, control: Any, **details: Any) -> None:
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        main = threading.current_thread() is threading.main_thread()
        self.seen.append((state.global_step, problem_with(folder) is None, main))


class Library(Saves):
    """As a callback of a package that only reads what is on the disk."""


Library.__module__ = "transformers.integrations"


def on_disk(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def run(folder: Path, *callbacks: Any, **settings: Any) -> Any:
    usual = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2}
    parts = {"callbacks": list(callbacks), "eval_dataset": tiny.class_rows(5)}
    return runs.trainer(folder, parts=parts, **{**usual, **settings})


def test_training_goes_on_while_one_checkpoint_is_written(gate: Gate, tmp_path: Path) -> None:
    seen, saves = Seen({4: gate.open.set}), Library()
    run(tmp_path, seen, saves).train()
    assert seen.ended[:4] == [(step, []) for step in (1, 2, 3, 4)]
    assert gate.begun == [2, 4, 6]
    assert not any(thread is threading.main_thread() for thread in gate.threads)
    assert saves.seen == [(2, True, True), (4, True, True), (6, True, True)]
    assert on_disk(tmp_path) == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]


def test_the_same_checkpoints_and_the_same_run_without(tmp_path: Path) -> None:
    behind, at_once = (run(tmp_path / str(on), save_async=on) for on in (True, False))
    behind.train()
    at_once.train()
    assert runs.difference(behind.model, at_once.model) == 0.0
    for step in (2, 4, 6):
        one, other = (tmp_path / str(on) / f"checkpoint-{step}" for on in (True, False))
        assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}
        assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
        assert problem_with(one) is None


def test_without_it_the_training_waits(gate: Gate, tmp_path: Path) -> None:
    gate.open.set()
    seen = Seen()
    run(tmp_path, seen, save_async=False).train()
    assert set(gate.threads) == {threading.main_thread()}
    assert seen.ended[2] == (3, ["checkpoint-2"])


def test_a_small_checkpoint_stands_before_the_next_step(tmp_path: Path) -> None:
    seen = Seen()
    assert run(tmp_path, seen).train().global_step == 6
    assert dict(seen.ended)[3] == ["checkpoint-2"] and dict(seen.ended)[5] == ["checkpoint-2", "checkpoint-4"]


def test_a_callback_of_the_users_own_hears_of_a_save_before_the_next_step(tmp_path: Path) -> None:
    seen, saves = Seen(), Saves()
    run(tmp_path, seen, saves).train()
    assert seen.ended[2] == (3, ["checkpoint-2"])
    assert saves.seen == [(2, True, True), (4, True, True), (6, True, True)]


def test_a_save_model_of_the_users_own_runs_in_the_thread_of_the_training(gate: Gate, tmp_path: Path) -> None:
    gate.open.set()

    class Own(burnish.Trainer):
        def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
            assert threading.current_thread() is threading.main_thread()
            super().save_model(output_dir, _internal_call)

    run_of_own = runs.trainer(tmp_path, Own, max_steps=2, save_strategy="steps", save_steps=2)
    run_of_own.train()
    assert set(gate.threads) == {threading.main_thread()}
    assert problem_with(tmp_path / "checkpoint-2") is None


def test_a_failure_is_told_at_the_next_step_and_the_next_save_is_tried(
    gate: Gate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate.open.set()
    gate.broken = {2}
    saves = Library()
    with caplog.at_level(logging.ERROR):
        trainer = run(tmp_path, saves)
        trainer.train()
    assert [record.args[0] for record in caplog.records if "was not saved" in record.msg] == [2]
    assert "No space left" in caplog.text
    assert [step for step, *_ in saves.seen] == [4, 6]
    assert on_disk(tmp_path) == ["checkpoint-4", "checkpoint-6"]
    assert trainer.state.global_step == 6


@pytest.mark.parametrize("save_async", [True, False])
def test_the_best_is_one_that_is_on_the_disk(save_async: bool, gate: Gate, tmp_path: Path) -> None:
    """The evaluation at step 4 is the best, and its checkpoint cannot be written."""
    gate.open.set()
    gate.broken = {4}
    scores = {1: 0.1, 2: 0.5, 3: 0.4, 4: 0.9, 5: 0.3, 6: 0.2}
    trainer = run(
        tmp_path, eval_strategy="steps", eval_steps=1, metric_for_best_model="score", greater_is_better=True,
        load_best_model_at_end=True, save_steps=1, save_total_limit=2, save_async=save_async,
    )  # fmt: skip
    trainer.compute_metrics = lambda prediction: {"score": scores[trainer.state.global_step]}
    trainer.train()
    best = tmp_path / "checkpoint-2"
    assert trainer.state.best_model_checkpoint == str(best)
    assert (trainer.state.best_metric, trainer.state.best_global_step) == (0.5, 2)
    assert on_disk(tmp_path) == ["checkpoint-2", "checkpoint-6"]
    from burnish.checkpoint.restore import read_state

    assert read_state(tmp_path / "checkpoint-6").best_model_checkpoint == str(best)
    assert read_state(best).best_model_checkpoint == str(best)


def test_an_evaluation_and_the_end_wait_for_the_write(gate: Gate, tmp_path: Path) -> None:
    begun: list[list[str]] = []

    class Evaluates(burnish.Trainer):
        def evaluate(self, *args: Any, **kwargs: Any) -> Any:
            begun.append(on_disk(tmp_path))
            return super().evaluate(*args, **kwargs)

    threading.Timer(0.3, gate.open.set).start()
    parts = {"eval_dataset": tiny.class_rows(5)}
    trainer = runs.trainer(
        tmp_path, Evaluates, parts=parts, max_steps=3, save_strategy="steps", save_steps=2, eval_strategy="steps",
        eval_steps=3,
    )  # fmt: skip
    trainer.train()
    assert begun == [["checkpoint-2"]]
    assert on_disk(tmp_path) == ["checkpoint-2", "checkpoint-3"]


def test_an_error_in_the_run_waits_for_the_write(gate: Gate, tmp_path: Path) -> None:
    def fail() -> None:
        threading.Timer(0.2, gate.open.set).start()
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        run(tmp_path, Seen({3: fail})).train()
    assert on_disk(tmp_path) == ["checkpoint-2"]


@pytest.mark.parametrize(("number", "end"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_ends_the_run_once_its_checkpoint_is_written(
    number: int, end: type[BaseException], gate: Gate, tmp_path: Path
) -> None:
    def ask() -> None:
        threading.Timer(0.2, gate.open.set).start()
        os.kill(os.getpid(), number)

    with pytest.raises(end):
        run(tmp_path, Seen({3: ask})).train()
    assert problem_with(tmp_path / "checkpoint-3") is None


def test_a_second_interrupt_leaves_at_once_and_the_next_run_waits(gate: Gate, tmp_path: Path) -> None:
    def ask() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

    trainer = run(tmp_path, Seen({1: ask}))
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert gate.begun == [1] and on_disk(tmp_path) == []
    threading.Timer(0.2, gate.open.set).start()
    again = run(tmp_path)
    again.train(resume_from_checkpoint=True)
    assert on_disk(tmp_path) == ["checkpoint-1", "checkpoint-2", "checkpoint-4", "checkpoint-6"]


def test_the_step_before_its_checkpoint_was_written_is_where_a_callback_stands(gate: Gate, tmp_path: Path) -> None:
    """Callbacks see the state of the checkpoint in `on_save`, and the run has its own again afterwards."""
    saves, seen = Library(), Seen({4: gate.open.set})
    trainer = run(tmp_path, saves, seen, max_steps=5, save_steps=3)
    trainer.train()
    assert saves.seen[0] == (3, True, True)
    assert trainer.state.global_step == 5
    assert [entry["step"] for entry in trainer.state.log_history][-1] == 5
