"""The log file has every number, tells one story, and never stops a run."""

from __future__ import annotations

import json
import logging
import math
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from burnish.callbacks.handler import CallbackHandler
from burnish.core.progress import TrainerControl, TrainerState
from burnish.tracking.jsonl import JsonLinesCallback


def run_in(folder: Path, step: int = 0, **state: Any) -> CallbackHandler:
    """A run that begins, or goes on after `step`."""
    handler = CallbackHandler([JsonLinesCallback])
    handler.args, handler.control = SimpleNamespace(output_dir=str(folder)), TrainerControl()
    handler.state = TrainerState(global_step=step, max_steps=10, **state)
    return handler


def log(handler: CallbackHandler, *steps: int, **values: Any) -> None:
    for step in steps:
        handler.state.global_step, handler.state.epoch = step, step / 10
        handler.fire("on_log", logs={"loss": 1.0, "epoch": step / 10, **values})


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps(path: Path) -> list[int]:
    return [line["step"] for line in lines(path)]


def test_a_line_says_what_was_logged_and_when(tmp_path: Path) -> None:
    handler = run_in(tmp_path / "new", num_examples_seen=16, num_input_tokens_seen=320)
    handler.fire("on_train_begin")
    log(handler, 2, grad_norm=np.float32(0.5))
    [line] = lines(tmp_path / "new" / "log.jsonl")
    assert line.pop("peak_memory_gib") > 0
    moment = datetime.fromisoformat(line.pop("time"))
    assert moment.utcoffset() is not None and moment.utcoffset().total_seconds() == 0  # type: ignore[union-attr]
    assert line == {
        "kind": "log",
        "step": 2,
        "epoch": 0.2,
        "num_examples_seen": 16,
        "num_input_tokens_seen": 320,
        "loss": 1.0,
        "grad_norm": 0.5,
    }


def test_evaluations_predictions_and_the_summary_are_there_once(tmp_path: Path) -> None:
    handler = run_in(tmp_path)
    handler.fire("on_log", logs={"eval_loss": 0.5, "epoch": 0.1})
    handler.fire("on_evaluate", metrics={"eval_loss": 0.5})
    handler.fire("on_evaluate", metrics={"eval_f1": 0.5})
    handler.fire("on_predict", metrics={"test_loss": 0.5})
    handler.fire("on_predict", metrics=None)
    handler.fire("on_log", logs={"train_runtime": 3.0, "train_loss": 0.5})
    kinds = [line["kind"] for line in lines(tmp_path / "log.jsonl")]
    assert kinds == ["evaluation", "evaluation", "prediction", "summary"]


def test_a_number_that_is_none_is_valid_json(tmp_path: Path) -> None:
    log(run_in(tmp_path), 1, loss=math.nan)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    line = json.loads((tmp_path / "log.jsonl").read_text(), parse_constant=refuse)
    assert (line["loss"], line["nonfinite"]) == (None, {"loss": "nan"})


def test_a_resumed_run_drops_the_lines_of_later_steps_and_those_cut_off(tmp_path: Path) -> None:
    log(run_in(tmp_path), 1, 2, 3, 4)
    path = tmp_path / "log.jsonl"
    path.write_text(path.read_text() + '{"step": 2, "los')
    again = run_in(tmp_path, step=2)
    again.fire("on_train_begin")
    log(again, 3)
    assert steps(path) == [1, 2, 3]
    assert [p.name for p in tmp_path.iterdir()] == ["log.jsonl"]


def test_the_log_of_an_earlier_run_is_moved_aside(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        handler = run_in(tmp_path)
        handler.fire("on_train_begin")
        log(handler, step)
    assert steps(tmp_path / "log.jsonl") == [3]
    assert steps(tmp_path / "log.1.jsonl") == [1]
    assert steps(tmp_path / "log.2.jsonl") == [2]


def test_an_evaluation_before_training_belongs_to_the_run(tmp_path: Path) -> None:
    handler = run_in(tmp_path)
    handler.fire("on_evaluate", metrics={"eval_loss": 2.0})
    handler.fire("on_train_begin")
    log(handler, 1)
    assert steps(tmp_path / "log.jsonl") == [0, 1]
    handler.state.global_step = 0
    handler.fire("on_train_begin")  # train() for the second time
    log(handler, 5)
    assert steps(tmp_path / "log.jsonl") == [5]
    assert steps(tmp_path / "log.1.jsonl") == [0, 1]


def test_other_processes_write_nothing(tmp_path: Path) -> None:
    handler = run_in(tmp_path, is_world_process_zero=False)
    handler.fire("on_train_begin")
    log(handler, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "log.jsonl").mkdir()
    handler = run_in(tmp_path, step=1)
    with caplog.at_level(logging.WARNING, "burnish"):
        handler.fire("on_train_begin")
        log(handler, 2, 3)
    assert len(caplog.records) == 1
    assert "log.jsonl" in caplog.text


def test_a_log_says_how_fast_the_training_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since the last log, without the time of evaluations and saves."""
    now = 0.0

    def passes(seconds: float, event: str, **details: Any) -> None:
        nonlocal now
        now += seconds
        handler.fire(event, **details)

    monkeypatch.setattr("burnish.tracking.pace.Pace.__init__.__defaults__", (lambda: now,))
    handler = run_in(tmp_path)
    handler.fire("on_train_begin")
    state = handler.state
    for seconds in (2.0, 1.0):
        state.num_examples_seen += 8
        state.num_input_tokens_seen += 100
        state.num_positions, state.num_positions_plain = state.num_positions + 150, state.num_positions_plain + 200
        passes(seconds, "on_step_end")
        log(handler, state.global_step + 1)
        passes(50, "on_prediction_step")
        handler.fire("on_log", logs={"eval_loss": 1.0, "eval_runtime": 50.0})
        passes(10, "on_evaluate", metrics={"eval_loss": 1.0, "eval_runtime": 50.0})
        passes(20, "on_save")
    first, evaluation, second, _ = lines(tmp_path / "log.jsonl")
    assert (first["examples_per_second"], first["tokens_per_second"], first["padding_avoided"]) == (4.0, 50.0, 0.25)
    assert (second["examples_per_second"], second["tokens_per_second"]) == (8.0, 100.0)
    assert "tokens_per_second" not in evaluation and "mfu" not in first and first["peak_memory_gib"] > 0
