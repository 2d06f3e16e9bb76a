"""A run ends when its metric has stopped getting better, and only then."""

from __future__ import annotations

import json
import logging
import math
from types import SimpleNamespace
from typing import Any

import pytest

from burnish.callbacks.early_stopping import EarlyStoppingCallback
from burnish.core.errors import SettingError
from burnish.core.progress import TrainerControl, TrainerState, stateful


def settings(**changed: Any) -> SimpleNamespace:
    known = {"metric_for_best_model": "accuracy", "greater_is_better": True, "eval_strategy": "steps"}
    return SimpleNamespace(**{**known, **changed})


def evaluate(callback: EarlyStoppingCallback, args: Any, *values: float, key: str = "eval_accuracy") -> list[bool]:
    """Whether a stop was asked for after each value."""
    asked = []
    for value in values:
        control = TrainerControl()
        callback.on_evaluate(args, TrainerState(global_step=1), control, metrics={key: value})
        asked.append(control.should_training_stop)
    return asked


def test_it_stops_after_as_many_evaluations_without_a_better_one_as_it_has_patience() -> None:
    assert evaluate(EarlyStoppingCallback(2), settings(), 0.5, 0.4, 0.6, 0.6, 0.5) == [False] * 4 + [True]


def test_lower_may_be_better() -> None:
    args = settings(metric_for_best_model="loss", greater_is_better=False)
    assert evaluate(EarlyStoppingCallback(1), args, 0.9, 0.5, 0.6, key="eval_loss") == [False, False, True]


def test_an_improvement_must_exceed_the_threshold() -> None:
    callback = EarlyStoppingCallback(1, early_stopping_threshold=0.125)
    assert evaluate(callback, settings(), 0.5, 0.625) == [False, True]
    assert callback.best == 0.5
    assert evaluate(callback, settings(), 0.75) == [False]


def test_the_first_number_is_the_best_however_bad() -> None:
    callback = EarlyStoppingCallback(1, early_stopping_threshold=10.0)
    assert evaluate(callback, settings(), -math.inf) == [False]
    assert callback.best == -math.inf


def test_nan_is_never_better_and_never_the_best() -> None:
    callback = EarlyStoppingCallback(3)
    assert evaluate(callback, settings(), math.nan, math.nan, 0.1, math.nan) == [False] * 4
    assert callback.best == 0.1


def test_it_does_not_look_at_the_best_metric_of_the_state() -> None:
    callback, state = EarlyStoppingCallback(1), TrainerState(global_step=5, best_metric=0.9, max_steps=9)
    for value in (0.5, 0.9):  # 0.9 is in the state already: another part was told first
        control = TrainerControl()
        callback.on_evaluate(settings(), state, control, metrics={"eval_accuracy": value})
        assert not control.should_training_stop


@pytest.mark.parametrize("name", ["acuracy", "eval_acuracy"])
def test_a_metric_that_is_not_there_is_an_error_that_names_those_that_are(name: str) -> None:
    with pytest.raises(SettingError, match=r"eval_acuracy.*eval_accuracy.*Did you mean 'eval_accuracy'"):
        evaluate(EarlyStoppingCallback(), settings(metric_for_best_model=name), 0.5)


def test_of_several_datasets_only_the_watched_one_counts() -> None:
    callback, args = EarlyStoppingCallback(1), settings(metric_for_best_model="eval_b_accuracy")
    for value, stops in ((0.5, False), (0.4, True)):
        control = TrainerControl()
        for name, score in (("a", 0.1), ("b", value)):
            metrics = {f"eval_{name}_accuracy": score, f"eval_{name}_runtime": 1.0}
            callback.on_evaluate(args, TrainerState(), control, metrics=metrics)
        assert control.should_training_stop is stops


def test_a_name_that_no_dataset_has_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    callback, args = EarlyStoppingCallback(1), settings(metric_for_best_model="accuracy")
    metrics = {"eval_a_accuracy": 0.5, "eval_a_runtime": 1.0}
    with caplog.at_level(logging.WARNING, "burnish"):
        callback.on_evaluate(args, TrainerState(), TrainerControl(), metrics=metrics)
        assert not caplog.records
        callback.on_evaluate(args, TrainerState(), TrainerControl(), metrics=metrics)
    assert "eval_a_accuracy" in caplog.text


def test_the_metrics_of_a_test_set_are_not_its_business() -> None:
    control = TrainerControl()
    metrics = {"test_accuracy": 0.1, "test_runtime": 1.0}
    EarlyStoppingCallback().on_evaluate(settings(), TrainerState(), control, metrics=metrics)
    assert not control.should_training_stop


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"metric_for_best_model": None}, "metric_for_best_model"),
        ({"greater_is_better": None}, "greater_is_better"),
        ({"eval_strategy": "no"}, "eval_strategy"),
    ],
)
def test_settings_under_which_it_cannot_work_are_refused_when_training_begins(changed: Any, named: str) -> None:
    with pytest.raises(SettingError, match=named):
        EarlyStoppingCallback().on_train_begin(settings(**changed), TrainerState(), TrainerControl())


def test_no_patience_at_all_is_refused() -> None:
    with pytest.raises(SettingError, match="early_stopping_patience=0"):
        EarlyStoppingCallback(0)


def test_a_resumed_run_goes_on_where_it_was() -> None:
    callback = EarlyStoppingCallback(3, 0.01)
    evaluate(callback, settings(), 0.5, 0.4, 0.3)
    saved = json.loads(json.dumps(stateful([callback])))["EarlyStoppingCallback"]
    again = EarlyStoppingCallback.from_state(saved)
    again.on_train_begin(settings(), TrainerState(global_step=3), TrainerControl())
    assert (again.best, again.early_stopping_patience_counter) == (0.5, 2)
    assert evaluate(again, settings(), 0.505) == [True]


def test_a_further_run_begins_anew() -> None:
    callback = EarlyStoppingCallback(1)
    evaluate(callback, settings(), 0.9, 0.8)
    callback.on_train_begin(settings(), TrainerState(global_step=0), TrainerControl())
    assert evaluate(callback, settings(), 0.5) == [False]


def test_a_state_that_transformers_wrote_is_taken() -> None:
    args = {"early_stopping_patience": 4, "early_stopping_threshold": 0.5}
    again = EarlyStoppingCallback.from_state({"args": args, "attributes": {"early_stopping_patience_counter": 3}})
    assert evaluate(again, settings(), 0.1) == [False]  # the first number that it sees
