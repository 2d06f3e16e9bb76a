"""When a run logs, evaluates and saves: the same steps as with transformers' default flow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from burnish.callbacks.flow import Cadences, cadences_of
from burnish.core.progress import TrainerControl, TrainerState

KNOWN = {
    "logging_strategy": "steps",
    "logging_steps": 4,
    "logging_first_step": False,
    "eval_strategy": "no",
    "eval_steps": None,
    "eval_delay": 0,
    "save_strategy": "steps",
    "save_steps": 500,
}


def cadences(max_steps: int = 10, **changed: Any) -> Cadences:
    return cadences_of(SimpleNamespace(**{**KNOWN, **changed}), max_steps)


def marked(of: Cadences, flag: str, max_steps: int = 10) -> list[int]:
    """The steps after which `flag` is asked for."""
    steps = []
    for step in range(1, max_steps + 1):
        control = TrainerControl()
        of.mark_step(control, TrainerState(global_step=step, max_steps=max_steps))
        if getattr(control, flag):
            steps.append(step)
    return steps


def test_logs_come_at_their_steps_and_at_the_last() -> None:
    assert marked(cadences(), "should_log") == [4, 8, 10]
    assert marked(cadences(logging_first_step=True), "should_log") == [1, 4, 8, 10]
    assert marked(cadences(logging_strategy="epoch"), "should_log") == []
    assert marked(cadences(logging_strategy="no", logging_first_step=True), "should_log") == []


def test_evaluations_come_at_their_steps_and_at_the_last_but_not_before_their_delay() -> None:
    assert marked(cadences(eval_strategy="steps", eval_steps=3), "should_evaluate") == [3, 6, 9, 10]
    assert marked(cadences(eval_strategy="steps", eval_steps=3, eval_delay=5), "should_evaluate") == [6, 9, 10]
    assert marked(cadences(eval_strategy="steps", eval_steps=3, eval_delay=11), "should_evaluate") == []
    assert marked(cadences(), "should_evaluate") == []


def test_checkpoints_come_at_their_steps_and_at_the_last() -> None:
    assert marked(cadences(save_steps=7), "should_save") == [7, 10]
    assert marked(cadences(save_strategy="best"), "should_save") == []
    assert marked(cadences(save_strategy="no"), "should_save") == []


def test_the_last_step_asks_for_the_end() -> None:
    assert marked(cadences(), "should_training_stop") == [10]


@pytest.mark.parametrize("name", ["log", "evaluate", "save"])
def test_an_epoch_asks_for_what_goes_by_epochs(name: str) -> None:
    setting = {"log": "logging_strategy", "evaluate": "eval_strategy", "save": "save_strategy"}[name]
    control = TrainerControl()
    cadences(**{setting: "epoch"}).mark_epoch(control, TrainerState(epoch=1.0))
    assert control == TrainerControl(**{f"should_{name}": True})


def test_evaluations_by_epochs_wait_for_their_delay() -> None:
    of = cadences(eval_strategy="epoch", eval_delay=2)
    for epoch, due in ((1.0, False), (2.0, True)):
        control = TrainerControl()
        of.mark_epoch(control, TrainerState(epoch=epoch))
        assert control.should_evaluate is due


def test_what_a_callback_asked_for_is_never_taken_back() -> None:
    asked = TrainerControl(True, True, True, True, True)
    of = cadences(logging_strategy="no", save_strategy="no")
    of.mark_step(asked, TrainerState(global_step=1, max_steps=10))
    of.mark_epoch(asked, TrainerState(epoch=1.0))
    assert asked == TrainerControl(True, True, True, True, True)


@pytest.mark.parametrize(
    ("changed", "max_steps", "expected"),
    [
        ({"logging_steps": None}, 1000, (20, 500, 500)),
        ({"logging_steps": None}, 7, (1, 500, 500)),
        ({"logging_steps": 30}, 1000, (30, 30, 500)),
        ({"logging_steps": 0.1, "eval_steps": 0.25, "save_steps": 0.5}, 101, (11, 26, 51)),
        ({"logging_steps": 30, "eval_steps": 90.0}, 1000, (30, 90, 500)),
    ],
)
def test_numbers_of_steps_are_resolved_and_shown_to_callbacks(
    changed: Any, max_steps: int, expected: tuple[int, int, int]
) -> None:
    state = TrainerState()
    cadences(max_steps, **changed).fill(state)
    assert (state.logging_steps, state.eval_steps, state.save_steps) == expected


def test_strategies_may_be_enums_of_transformers() -> None:
    from transformers.trainer_utils import IntervalStrategy, SaveStrategy

    of = cadences(eval_strategy=IntervalStrategy.STEPS, save_strategy=SaveStrategy.STEPS, eval_steps=5)
    assert marked(of, "should_evaluate") == [5, 10]
    assert marked(of, "should_save") == [10]
