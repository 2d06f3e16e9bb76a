"""Plain lines where nobody watches, a live display where somebody does, and a terminal left as it was found."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from burnish.callbacks.handler import CallbackHandler
from burnish.core.progress import TrainerControl, TrainerState
from burnish.tracking.console import ConsoleCallback
from burnish.tracking.live import LiveDisplay

METRICS = {"eval_loss": 0.39, "eval_accuracy": 0.87, "eval_runtime": 2.1, "eval_samples_per_second": 410.0}


def begun(**state: Any) -> CallbackHandler:
    handler = CallbackHandler([ConsoleCallback])
    handler.args, handler.control = SimpleNamespace(disable_tqdm=None), TrainerControl()
    handler.state = TrainerState(max_steps=4, num_train_epochs=2, **state)
    return handler


def step(handler: CallbackHandler, loss: float = 0.5) -> None:
    state = handler.state
    state.global_step += 1
    state.epoch += 0.5
    state.num_examples_seen += 8
    state.num_input_tokens_seen += 80
    state.num_positions += 100
    state.num_positions_plain += 500
    handler.fire("on_step_end")
    handler.fire("on_log", logs={"loss": loss, "learning_rate": 1e-4, "epoch": state.epoch})


def whole_run(handler: CallbackHandler) -> None:
    handler.fire("on_train_begin")
    step(handler)
    step(handler, math.nan)
    for _ in range(3):
        handler.fire("on_prediction_step", eval_dataloader=[1, 2, 3])
    handler.fire("on_log", logs={**METRICS, "epoch": 1.0})
    handler.fire("on_evaluate", metrics=METRICS)
    handler.fire("on_save")
    handler.fire("on_train_end")


def test_elsewhere_than_on_a_terminal_there_is_a_line_for_each_log(capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(begun())
    out, err = capsys.readouterr()
    first, second, evaluation = out.splitlines()
    assert first.startswith("step 1/4  epoch 0.50  loss  0.5000  lr 1.0e-04")
    for unit in ("ex/s", "tok/s", "padding avoided 80%", "ETA 0:00:0", "iB"):
        assert unit in first
    assert "loss     nan" in second
    assert evaluation == "eval   step 2/4  epoch 1.00  loss 0.3900  accuracy 0.8700  (2.1 s, 410 ex/s)"
    assert err == ""


def test_an_evaluation_or_prediction_that_is_only_announced_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    handler = begun()
    handler.fire("on_evaluate", metrics=METRICS)
    handler.fire("on_predict", metrics={"test_f1": 0.5, "test_runtime": 1.0})
    handler.fire("on_predict", metrics=None)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["eval", "test"]


def test_other_processes_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(begun(is_world_process_zero=False))
    assert capsys.readouterr() == ("", "")


def test_rich_is_not_loaded_for_plain_lines() -> None:
    code = (
        "import sys, types; from burnish.tracking.console import ConsoleCallback as C;"
        "from burnish.core.progress import TrainerState as S; c, s = C(), S(max_steps=3);"
        "a = types.SimpleNamespace(disable_tqdm=True); c.on_train_begin(a, s, None); c.on_step_end(a, s, None);"
        "c.on_log(a, s, None, logs={'loss': 1.0}); c.on_train_end(a, s, None); print('rich' in sys.modules)"
    )
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=paths, check=True)
    assert done.stdout.splitlines()[-1] == "False"


# ---------------------------------------------------------------- on a terminal


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def on_terminal(stdout: io.StringIO | None = None) -> Iterator[Terminal]:
    """Both streams are one terminal of 140 columns, or stdout is another thing."""
    screen = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", screen)
        patch.setattr(sys, "stdout", screen if stdout is None else stdout)
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            patch.delenv(name, raising=False)
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLUMNS", "140")
        yield screen


def shown(screen: Terminal) -> str:
    """What was written, without the codes for colours and movements."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())


def test_on_a_terminal_there_are_bars_and_lines_above_them() -> None:
    with on_terminal() as terminal:
        whole_run(begun())
    text = shown(terminal)
    assert "50% 2/4" in text[text.index("training") :]
    assert "1/3" in text[text.index("evaluating") :]
    assert "step 1/4  epoch 0.50  loss  0.5000" in text
    assert text.count("eval   step 2/4  epoch 1.00  loss 0.3900  accuracy 0.8700") == 1


def test_the_terminal_is_given_back_when_a_run_fails() -> None:
    with on_terminal() as terminal:
        handler = begun()
        handler.fire("on_train_begin")
        assert sys.stdout is not terminal
        print("a line of the user")
        step(handler)
        handler.fire("on_exception")
        assert sys.stdout is terminal
        assert sys.stderr is terminal
    written = terminal.getvalue()
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l"), "the cursor stays hidden"
    assert "a line of the user" in shown(terminal)


def test_disable_tqdm_means_plain_lines() -> None:
    with on_terminal() as terminal:
        handler = begun()
        handler.args.disable_tqdm = True
        whole_run(handler)
    assert "\x1b" not in terminal.getvalue()
    assert len(terminal.getvalue().splitlines()) == 3


def test_an_evaluation_alone_has_its_bar_for_as_long_as_it_runs() -> None:
    with on_terminal() as terminal:
        handler = begun()
        for _ in range(2):
            handler.fire("on_prediction_step", eval_dataloader=iter([]))  # no length
        assert sys.stderr is not terminal
        handler.fire("on_evaluate", metrics=METRICS)
        assert sys.stderr is terminal
    assert "evaluating" in shown(terminal)


def test_lines_go_to_a_file_while_the_bars_stay_on_the_terminal() -> None:
    file = io.StringIO()
    with on_terminal(stdout=file) as terminal:
        whole_run(begun())
    assert [line.split()[0] for line in file.getvalue().splitlines()] == ["step", "step", "eval"]
    assert "training" in shown(terminal)
    assert "step 1/4" not in shown(terminal)


def test_a_number_that_is_none_stands_out() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=100)
    display = LiveDisplay(console)
    display.line("loss nan  lr 1.0e-04")
    display.stop()
    assert "\x1b[1;31mnan\x1b[0m" in console.file.getvalue()  # type: ignore[attr-defined]
