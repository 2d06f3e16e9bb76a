"""A process that hangs ends the run, with a message that says where each process is."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from distributed.forked import in_processes
from torch.utils.data import Dataset
from trainer import runs

import burnish

LIMIT = 1.0


def rank() -> int:
    return int(os.environ["RANK"])


class Hanging(Dataset[Any]):
    """On process 1 a row of the third step is never there."""

    def __init__(self) -> None:
        self.rows, self.trainer = tiny.class_rows(16), None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Any:
        if rank() == 1 and self.trainer is not None and self.trainer.state.global_step == 2:
            time.sleep(60)
        return self.rows[number]


def run_of(folder: Path, rows: Any, **settings: Any) -> Any:
    return runs.trainer(
        folder,
        parts={"train_dataset": rows},
        per_device_train_batch_size=2,
        max_steps=6,
        **{"hang_timeout": LIMIT, **settings},
    )


def hanging_in_reading(folder: Path, **settings: Any) -> None:
    rows = Hanging()
    run = rows.trainer = run_of(folder, rows, **settings)
    run.train()


def test_a_process_that_never_reads_its_row(tmp_path: Path) -> None:
    ended = in_processes(2, tmp_path, hanging_in_reading, tmp_path / "out", hanging=1)
    assert ended[0].error == "ProcessError"
    said = ended[0].words
    assert "1 of 2 processes (1) did not come" in said
    assert "process 1: reading the rows of step 3" in said and "(__getitem__)" in said
    assert "process 0: reading the rows of step 3" in said and "waits for the others" in said


def stopped(folder: Path, on: int) -> None:
    """One process is stopped, as a debugger or a full machine does."""
    run = run_of(folder, tiny.class_rows(16))

    class Stop(burnish.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2 and rank() == on:
                os.kill(os.getpid(), signal.SIGSTOP)

    run.add_callback(Stop())
    run.train()


@pytest.mark.parametrize("on", [0, 1])
def test_a_process_that_gives_no_sign_of_life(on: int, tmp_path: Path) -> None:
    """Process 0 keeps what the others tell: without it, they know no more than that it is silent."""
    ended = in_processes(2, tmp_path, stopped, tmp_path / "out", on, hanging=on)
    said = ended[1 - on].words
    assert ended[1 - on].error == "ProcessError", said
    assert f"process {on}: gives no sign of life" in said


def hanging_in_the_model(folder: Path) -> None:
    """Where the other one waits for gradients, in torch."""
    run = run_of(folder, tiny.class_rows(16))

    def hang(*given: Any) -> None:
        if rank() == 1 and run.is_in_train and torch.is_grad_enabled() and run.state.global_step == 2:
            time.sleep(60)

    run.model.register_forward_pre_hook(hang)
    run.train()


def test_a_process_that_waits_for_gradients_of_another(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    in_processes(2, tmp_path, hanging_in_the_model, tmp_path / "out", hanging=1)
    said = capfd.readouterr().err
    assert "The run hangs: a step has not come to its end." in said
    assert "process 1: computing step 3" in said and "(hang)" in said and "backward)" in said


def slow_evaluation(folder: Path) -> int:
    """One process takes long over what the others do not wait for in a step."""

    def slow(found: Any) -> dict[str, float]:
        time.sleep(3 * LIMIT)
        return {"rows": len(found.label_ids)}

    run = runs.trainer(
        folder,
        parts={"eval_dataset": tiny.class_rows(4), "compute_metrics": slow},
        per_device_train_batch_size=2,
        max_steps=3,
        eval_strategy="steps",
        eval_steps=2,
        hang_timeout=LIMIT,
    )
    run.train()
    return int(run.state.global_step)


def test_work_that_takes_long_is_waited_for(tmp_path: Path) -> None:
    assert [one.value for one in in_processes(2, tmp_path, slow_evaluation, tmp_path / "out")] == [3, 3]
