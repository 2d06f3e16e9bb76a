"""Callbacks are called as transformers calls them, and those with nothing to say are left out."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from burnish.callbacks.handler import CallbackHandler
from burnish.core.errors import SettingError
from burnish.core.events import TrainerCallback
from burnish.core.progress import TrainerControl, TrainerState


class Heard(TrainerCallback):
    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.calls.append(("on_step_end", kwargs))

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.calls.append(("on_log", kwargs))


def handler_of(*callbacks: Any) -> CallbackHandler:
    handler = CallbackHandler(callbacks, model="model", processing_class="tokenizer")
    handler.args, handler.state, handler.control = SimpleNamespace(), TrainerState(max_steps=10), TrainerControl()
    return handler


def test_details_hold_the_parts_of_the_run_and_what_the_event_adds() -> None:
    heard = Heard()
    handler = handler_of(heard)
    handler.train_dataloader = ["batch"]
    handler.fire("on_log", logs={"loss": 1.0})
    [(_, details)] = heard.calls
    assert details["logs"] == {"loss": 1.0}
    assert (details["model"], details["processing_class"]) == ("model", "tokenizer")
    assert details["train_dataloader"] == ["batch"]
    assert {"optimizer", "lr_scheduler", "eval_dataloader"} <= details.keys()


def test_a_detail_of_the_event_wins_over_the_part_of_that_name() -> None:
    heard = Heard()
    handler = handler_of(heard)
    handler.fire("on_step_end", eval_dataloader=["other"])
    assert heard.calls[0][1]["eval_dataloader"] == ["other"]


def test_callbacks_are_called_in_the_order_in_which_they_were_added() -> None:
    order: list[int] = []

    class Numbered(TrainerCallback):
        def __init__(self, number: int) -> None:
            self.number = number

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            order.append(self.number)

    handler = handler_of(*map(Numbered, (2, 1, 3)))
    handler.fire("on_save")
    assert order == [2, 1, 3]


def test_an_event_that_nobody_overrides_calls_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def called(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the empty method of the base was called")

    handler = handler_of(Heard())
    monkeypatch.setattr(TrainerCallback, "on_substep_end", called)
    handler.fire("on_substep_end")


def test_the_empty_methods_of_transformers_are_left_out_too() -> None:
    from transformers import TrainerCallback as Theirs

    class Counting(Theirs):
        steps = 0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            self.steps += 1
            return control

        # transformers' own `on_predict` demands `metrics`: calling it without would fail

    counting = Counting()
    handler = handler_of(counting)
    handler.fire("on_step_end")
    handler.fire("on_predict")
    assert counting.steps == 1


def test_a_method_inherited_from_a_class_between_is_called() -> None:
    class Between(TrainerCallback):
        heard = 0

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.heard += 1

    class Last(Between):
        pass

    last = Last()
    handler_of(last).fire("on_epoch_end")
    assert last.heard == 1


def test_a_method_set_on_an_instance_is_called() -> None:
    heard: list[int] = []
    callback = TrainerCallback()
    callback.on_epoch_begin = lambda args, state, control, **kwargs: heard.append(state.max_steps)  # type: ignore
    handler_of(callback).fire("on_epoch_begin")
    assert heard == [10]


def test_an_object_that_lacks_some_events_is_asked_for_the_others() -> None:
    class Duck:
        steps = 0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.steps += 1

    duck = Duck()
    handler = handler_of(duck)
    handler.fire("on_train_begin")
    handler.fire("on_step_end")
    assert duck.steps == 1


def test_any_other_event_reaches_those_who_define_it() -> None:
    class Wide(TrainerCallback):
        seen: Any = None

        def on_rollout_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.seen = kwargs["reward"]

    wide = Wide()
    handler_of(Heard(), wide).fire("on_rollout_end", reward=0.5)
    assert wide.seen == 0.5


def test_the_flags_of_a_control_object_that_is_returned_are_taken_over() -> None:
    class Returns(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> TrainerControl:
            return TrainerControl(should_save=True, should_training_stop=True)

    handler = handler_of(Returns())
    held = handler.control
    handler.fire("on_step_end")
    assert handler.control is held
    assert (held.should_save, held.should_training_stop, held.should_log) == (True, True, False)


def test_what_is_no_control_object_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    class Returns(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> str:
            return "done"

    handler = handler_of(Returns())
    handler.control.should_log = True
    with caplog.at_level(logging.WARNING, "burnish"):
        handler.fire("on_step_end")
    assert handler.control == TrainerControl(should_log=True)
    assert "Returns.on_step_end" in caplog.text and "'done'" in caplog.text


class Fails(TrainerCallback):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        raise self.error


def test_an_error_names_the_callback_and_the_event_and_stays_what_it_is() -> None:
    with pytest.raises(KeyError) as caught:
        handler_of(Fails(KeyError("reward"))).fire("on_log", logs={})
    said = getattr(caught.value, "__notes__", None) or [str(caught.value.__cause__)]
    assert "Fails" in said[0] and "on_log" in said[0]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_an_interrupt_passes_untouched() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        handler_of(Fails(KeyboardInterrupt())).fire("on_log", logs={})
    assert not hasattr(caught.value, "__notes__")


def test_classes_and_instances_come_and_go() -> None:
    handler = handler_of(Heard)
    first = handler.callbacks[0]
    assert isinstance(first, Heard)
    assert handler.pop_callback(Heard) is first
    assert handler.pop_callback(Heard) is None
    handler.add_callback(first)
    handler.remove_callback(first)
    handler.remove_callback(first)
    assert handler.callbacks == []


def test_a_callback_that_came_or_went_between_two_events_is_noticed() -> None:
    heard, later = Heard(), Heard()
    handler = handler_of(heard)
    handler.fire("on_step_end")
    handler.callbacks.append(later)
    handler.callbacks.remove(heard)
    handler.fire("on_step_end")
    assert (len(heard.calls), len(later.calls)) == (1, 1)


def test_a_callback_may_take_itself_out() -> None:
    class Once(TrainerCallback):
        calls = 0

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.calls += 1
            handler.remove_callback(self)

    once, heard = Once(), Heard()
    handler = handler_of(once, heard)
    handler.fire("on_step_end")
    handler.fire("on_step_end")
    assert (once.calls, len(heard.calls)) == (1, 2)


def test_a_second_callback_of_a_class_is_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "burnish"):
        handler = handler_of(Heard(), Heard())
    assert len(handler.callbacks) == 2
    assert "Heard" in caplog.text


@pytest.mark.parametrize("thing", [print, "wandb", 3])
def test_what_has_no_event_is_refused(thing: Any) -> None:
    with pytest.raises(SettingError, match="on_step_end"):
        handler_of(thing)


def test_overridden_methods_of_a_trainer_may_call_it_as_they_call_transformers() -> None:
    heard = Heard()
    handler = handler_of(heard)
    state, control = TrainerState(global_step=3), TrainerControl()
    assert handler.on_log(handler.args, state, control, {"loss": 2.0}) is control
    assert handler.state is state
    assert heard.calls[0][1]["logs"] == {"loss": 2.0}
    assert handler.call_event("on_step_end", handler.args, state, control) is control
    assert [event for event, _ in heard.calls] == ["on_log", "on_step_end"]
    with pytest.raises(AttributeError, match="on_nothing"):
        _ = handler.on_nothing
