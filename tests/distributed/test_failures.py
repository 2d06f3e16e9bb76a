"""What happens on one process is known to all: errors, signals, memory that runs out, numbers that are not finite."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from distributed.forked import Ended, in_processes, values
from torch.utils.data import Dataset
from trainer import runs

import burnish
from burnish.core.errors import DataError


def rank() -> int:
    return int(os.environ["RANK"])


class Breaking(Dataset[Any]):
    """Cannot be read at one row, from the second pass on."""

    def __init__(self, bad: int) -> None:
        self.rows, self.bad, self.passes = tiny.class_rows(16), bad, 0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Any:
        if number == self.bad and self.passes:
            raise OSError("the disk is gone")
        return self.rows[number]


class NextPass(burnish.TrainerCallback):
    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.rows.passes += 1

    def __init__(self, rows: Breaking) -> None:
        self.rows = rows


def failing(folder: Path, where: str, on: int) -> None:
    """A run that fails on one process, in its second pass or step."""
    rows: Any = Breaking(2 + on) if where == "row" else tiny.class_rows(16)
    callbacks = [NextPass(rows)] if where == "row" else []
    run = runs.trainer(
        folder,
        parts={"train_dataset": rows, "callbacks": callbacks, "eval_dataset": tiny.class_rows(6)},
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        train_sampling_strategy="sequential",
        eval_strategy="epoch",
    )
    calls = [0]

    def fail(*given: Any) -> None:
        calls[0] += 1
        in_step = torch.is_grad_enabled()
        wanted = in_step if where == "model" else not in_step
        if rank() == on and where != "row" and run.is_in_train and run.state.global_step >= 1 and wanted:
            raise KeyError("broken on purpose")

    run.model.register_forward_pre_hook(fail)
    run.train()


def told(ended: list[Ended], on: int, error: str, words: str, most: float = 25.0) -> None:
    assert all(one.seconds < most for one in ended), [one.seconds for one in ended]
    assert ended[on].error == error and words in ended[on].words
    other = ended[1 - on]
    assert other.error == "ProcessError"
    assert words in other.words or "has ended" in other.words, other


@pytest.mark.parametrize("on", [0, 1])
def test_a_row_that_one_process_cannot_read(on: int, tmp_path: Path) -> None:
    """Lengths are not known before, so that rows of even number are of process 0."""
    ended = in_processes(2, tmp_path, failing, tmp_path / "out", "row", on)
    told(ended, on, "DataError", f"Row {2 + on} of the dataset could not be read (OSError: the disk is gone)")


@pytest.mark.parametrize("on", [0, 1])
@pytest.mark.parametrize("where", ["model", "evaluation"])
def test_a_model_that_fails_on_one_process(where: str, on: int, tmp_path: Path) -> None:
    """In a step the others wait for gradients, and learn of it when the process has ended."""
    told(in_processes(2, tmp_path, failing, tmp_path / "out", where, on), on, "KeyError", "broken on purpose")


def failing_everywhere(folder: Path) -> Any:
    """An error that all processes have alike leaves them in step."""
    run = runs.trainer(folder, parts={"train_dataset": [{"input_ids": [], "labels": 0}]})
    try:
        run.train()
    except DataError as error:
        runs.trainer(folder, max_steps=1, per_device_train_batch_size=2).train()
        return str(error)


def test_after_an_error_that_all_have_they_go_on_together(tmp_path: Path) -> None:
    one, other = values(in_processes(2, tmp_path, failing_everywhere, tmp_path / "out"))
    assert one == other and "row 0" in one.lower()


# ---------------------------------------------------------------- signals


def signalled(folder: Path, number: int, on: int) -> None:
    """A signal reaches one process while a step is computed."""
    run = runs.trainer(folder, max_steps=2000, per_device_train_batch_size=2, num_train_epochs=100)

    class Send(burnish.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 3 and rank() == on:
                os.kill(os.getpid(), number)

    run.add_callback(Send())
    try:
        run.train()
    finally:
        (folder / f"ended-{rank()}").write_text(str(run.state.global_step))


@pytest.mark.parametrize("on", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_to_one_process_ends_all_after_the_same_step(number: int, on: int, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    ended = in_processes(2, tmp_path, signalled, folder, number, on)
    assert [one.error for one in ended] == ["KeyboardInterrupt" if number == signal.SIGINT else "SystemExit"] * 2
    if number != signal.SIGINT:
        assert [one.words for one in ended] == [str(128 + number)] * 2
    steps = [(folder / f"ended-{index}").read_text() for index in range(2)]
    assert steps[0] == steps[1]
    assert [path.name for path in folder.glob("checkpoint-*")] == [f"checkpoint-{steps[0]}"]


def hanging(folder: Path) -> None:
    """The other process ends without a word."""
    run = runs.trainer(folder, max_steps=20, per_device_train_batch_size=2)

    class Leave(burnish.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2 and rank() == 1:
                os._exit(9)

    run.add_callback(Leave())
    run.train()


def test_a_process_that_is_killed(tmp_path: Path) -> None:
    began = time.monotonic()
    ended = in_processes(2, tmp_path, hanging, tmp_path / "out")
    assert time.monotonic() - began < 30
    assert ended[0].error == "ProcessError" and "Another process of this run has ended" in ended[0].words


# ---------------------------------------------------------------- memory, and numbers that are not finite


def out_of_memory(folder: Path, rows: int, count: int) -> Any:
    """On process 1 no more than so many rows go through the model at once."""
    run = runs.trainer(
        folder,
        parts={"train_dataset": tiny.class_rows(16)},
        per_device_train_batch_size=8 // count,
        max_steps=2,
        learning_rate=0.05,
        optim="sgd",
        lr_scheduler_type="constant",
    )

    def refuse(module: Any, args: Any, kwargs: Any) -> None:
        if count > 1 and rank() == 1 and run.is_in_train and len(kwargs["input_ids"]) > rows:
            raise torch.OutOfMemoryError("out of memory")

    run.model.register_forward_pre_hook(refuse, with_kwargs=True)
    run.train()
    return runs.weights(run.model)


def test_memory_runs_out_on_one_process(tmp_path: Path) -> None:
    """In the forward pass of its last micro-batch: the others wait, and get the gradient of the same step."""
    alone = out_of_memory(tmp_path / "alone", 2, 1)
    for found in values(in_processes(2, tmp_path, out_of_memory, tmp_path / "out", 2, 2)):
        assert runs.difference(found, alone) < 1e-6


def out_of_memory_late(folder: Path) -> None:
    """In the backward pass of the last micro-batch, when others have part of the gradient."""
    run = runs.trainer(folder, parts={"train_dataset": tiny.class_rows(16)}, per_device_train_batch_size=4, max_steps=2)

    def refuse(gradient: torch.Tensor) -> None:
        if rank() == 1 and run.is_in_train:
            raise torch.OutOfMemoryError("out of memory")

    next(run.model.parameters()).register_hook(refuse)
    run.train()


def test_memory_runs_out_too_late(tmp_path: Path) -> None:
    ended = in_processes(2, tmp_path, out_of_memory_late, tmp_path / "out")
    assert ended[1].error == "OutOfMemoryError" and "token_budget=" in ended[1].words
    assert ended[0].error == "ProcessError"


def not_finite(folder: Path, policy: str) -> Any:
    """Row 5 makes a loss that is NaN; it is of one process."""
    rows = tiny.class_rows(8)
    rows[5]["input_ids"][1] = tiny.NUM_WORDS - 1
    run = runs.trainer(
        folder,
        parts={"train_dataset": rows},
        per_device_train_batch_size=2,
        num_train_epochs=2,
        nonfinite_policy=policy,
    )

    def spoil(module: Any, args: Any, embedded: torch.Tensor) -> torch.Tensor:
        marked = (args[0] == tiny.NUM_WORDS - 1).any(-1)
        return torch.where(marked[:, None, None] & run.is_in_train, torch.nan, embedded)

    run.model.get_input_embeddings().register_forward_hook(spoil)
    run.train()
    return runs.weights(run.model)


def test_a_loss_that_is_not_finite_ends_all_with_the_row(tmp_path: Path) -> None:
    for one in in_processes(2, tmp_path, not_finite, tmp_path / "out", "stop"):
        assert one.error == "NonFiniteError" and "NaN or infinite for row 5." in one.words


def test_a_step_that_is_not_finite_is_left_out_by_all(tmp_path: Path) -> None:
    one, other = values(in_processes(2, tmp_path, not_finite, tmp_path / "out", "skip"))
    assert runs.difference(one, other) == 0.0 and all(torch.isfinite(value).all() for value in one.values())
