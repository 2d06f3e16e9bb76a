"""The loop: which steps, in which passes, what is done when, and going on from where it stood."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from looping import EverySoOften, Steps, batch, linear, loop, step, weights

from burnish.core.errors import DataError
from burnish.core.progress import TrainerState


def test_passes_steps_and_counts() -> None:
    steps = Steps(4)
    run = loop(10, steps)
    run.run()
    state = run.state
    assert steps.asked == [(0, 0), (1, 0), (2, 0)]
    assert (state.global_step, state.passes, state.steps_in_pass, state.epoch) == (10, 2, 2, 2.5)
    assert (state.num_examples_seen, state.num_input_tokens_seen, state.num_positions) == (20, 20, 20)
    assert run.events.fired.count("on_epoch_begin") == run.events.fired.count("on_epoch_end") == 3
    assert run.events.fired.count("on_step_begin") == run.events.fired.count("on_step_end") == 10


def test_the_last_step_of_a_pass_completes_it() -> None:
    run = loop(8, Steps(4))
    run.run()
    assert (run.state.passes, run.state.steps_in_pass, run.state.epoch) == (2, 0, 2.0)


def test_the_order_of_events_in_a_step() -> None:
    run = loop(1)
    run.run()
    assert run.events.fired == [
        "on_epoch_begin",
        "on_step_begin",
        "on_pre_optimizer_step",
        "on_optimizer_step",
        "on_step_end",
        "on_epoch_end",
    ]


def test_log_then_evaluate_then_save_and_the_rest_is_logged_at_the_end() -> None:
    run = loop(5, rhythm=EverySoOften(log=2, evaluate=2, save=2))
    run.run()
    at = [(what, number) for number in (2, 4) for what in ("log", "evaluate", "save")]
    assert run.actions.done == [*at, ("log", 5)]


def test_a_log_holds_the_rate_of_its_step_and_the_mean_since_the_last() -> None:
    each, both = loop(4, rhythm=EverySoOften(log=1)), loop(4, rhythm=EverySoOften(log=2))
    each.run()
    both.run()
    losses = [logs["loss"] for logs in each.actions.logs]
    assert [logs["loss"] for logs in both.actions.logs] == pytest.approx(
        [(losses[0] + losses[1]) / 2, (losses[2] + losses[3]) / 2]
    )
    assert [logs["learning_rate"] for logs in each.actions.logs] == [1.0, 0.5, 0.25, 0.125]
    assert [run.state.train_loss for run in (each, both)] == pytest.approx([sum(losses) / 4] * 2)


def test_a_new_best_is_saved() -> None:
    run = loop(4, rhythm=EverySoOften(evaluate=1), best=(2, 3))
    run.run()
    assert [number for what, number in run.actions.done if what == "save"] == [2, 3]


@pytest.mark.parametrize("log", [0, 1, 3])
@pytest.mark.parametrize("stop", range(1, 12))
def test_a_run_that_goes_on_is_the_run_without_a_break(stop: int, log: int) -> None:
    straight = linear()
    whole = loop(11, model=straight, rhythm=EverySoOften(log=log, save=stop))
    whole.run()
    model = linear()
    first = loop(stop, model=model, rhythm=EverySoOften(log=log, save=stop))
    first.run()
    steps = Steps(4)
    second = loop(11, steps, state=first.actions.saved[0], model=model, rhythm=EverySoOften(log=log))
    second.run()
    assert torch.equal(weights(model), weights(straight))
    passes, done = divmod(stop - 1, 4)  # a pass that was saved at its last step still has its end to come
    assert stop == 11 or steps.asked[0] == (passes, done + 1)
    for name in ("global_step", "passes", "steps_in_pass", "epoch", "num_examples_seen"):
        assert getattr(second.state, name) == getattr(whole.state, name), name
    assert second.state.train_loss == pytest.approx(whole.state.train_loss)


def test_a_stream_of_unknown_length() -> None:
    steps = Steps(3, known=False)
    run = loop(7, steps)
    run.run()
    assert steps.asked == [(0, 0), (1, 0), (2, 0)] and run.state.global_step == 7
    assert run.state.epoch <= 3


def test_a_stream_stopped_at_the_end_of_a_pass_goes_on_with_the_next() -> None:
    run = loop(3, Steps(3, known=False))
    run.run()
    resumed = loop(5, Steps(3, known=False), state=run.state)
    resumed.run()
    assert resumed.state.global_step == 5 and resumed.state.num_examples_seen == 10


def test_a_stream_that_can_be_read_once() -> None:
    with pytest.raises(DataError, match=r"no rows in pass 2; 3 of 5 steps are done"):
        loop(5, Steps(3, known=False, passes=1)).run()
    with pytest.raises(DataError, match="no rows in pass 1"):
        loop(5, Steps(0)).run()


def stop_after(run: Any, number: int, flag: str) -> None:
    def ask() -> None:
        if run.state.global_step == number:
            setattr(run.control, flag, True)

    run.events.at["on_step_end"] = ask


def test_a_callback_stops_the_run_in_the_middle_of_a_pass() -> None:
    run = loop(9)
    stop_after(run, 6, "should_training_stop")
    run.run()
    assert (run.state.global_step, run.state.passes, run.state.steps_in_pass) == (6, 1, 2)
    assert run.actions.done == [("log", 6)]


def test_a_callback_ends_a_pass() -> None:
    steps = Steps(4)
    run = loop(6, steps)
    stop_after(run, 2, "should_epoch_stop")
    run.run()
    assert steps.asked == [(0, 0), (1, 0)] and (run.state.passes, run.state.steps_in_pass) == (2, 0)


@pytest.mark.parametrize("flag", ["should_log", "should_evaluate", "should_save"])
def test_a_callback_asks_for_something_once(flag: str) -> None:
    run = loop(4)
    stop_after(run, 2, flag)
    run.run()
    what = flag.removeprefix("should_")
    assert [number for done, number in run.actions.done if done == what] == ([2, 4] if what == "log" else [2])


def test_a_signal_saves_and_ends_the_run_after_the_step() -> None:
    run = loop(9)

    def signal() -> None:
        run.stop.requested = 15 if run.state.global_step == 3 else None

    run.events.at["on_step_end"] = signal
    with pytest.raises(SystemExit) as caught:
        run.run()
    assert caught.value.code == 143 and run.state.global_step == 3
    assert run.actions.done == [("save", 3)] and run.actions.saved[0].unlogged_steps == 3


@pytest.mark.parametrize(("event", "saved"), [("on_step_end", [2]), ("on_optimizer_step", []), ("on_step_begin", [1])])
def test_an_interrupt_saves_between_steps_and_never_within_one(event: str, saved: list[int]) -> None:
    run = loop(9)

    def interrupt() -> None:
        if run.events.fired.count(event) == 2:
            raise KeyboardInterrupt

    run.events.at[event] = interrupt
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert [number for what, number in run.actions.done if what == "save"] == saved


def test_steps_without_a_target_count_and_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("burnish").propagate = True
    steps = Steps(4)
    for index in (1, 2):
        steps.replaced[0, index] = step(batch(index, without=(index,)), index=index)
    run = loop(4, steps, rhythm=EverySoOften(log=1))
    run.run()
    assert run.state.global_step == 4 and run.state.num_loss_steps == 2
    assert caplog.text.count("has no target") == 1 and "every label of rows [1] is -100" in caplog.text
    assert ["loss" in logs for logs in run.actions.logs] == [True, False, False, True]


def test_nothing_left_to_train_does_nothing() -> None:
    state = TrainerState(global_step=4, passes=1)
    run = loop(4, state=state)
    run.run()
    assert run.events.fired == [] and run.actions.done == []
