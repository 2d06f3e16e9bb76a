"""What follows from other settings."""

import logging
import os

import pytest

from burnish.arguments.training_arguments import TrainingArguments
from burnish.core.errors import SettingError

BEST = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}


def test_the_output_folder_has_a_default_and_a_home():
    assert TrainingArguments().output_dir == "trainer_output"
    assert TrainingArguments("~/out").output_dir == os.path.expanduser("~/out")


def test_evaluating_while_training_means_evaluating():
    assert TrainingArguments(eval_strategy="epoch").do_eval is True
    assert TrainingArguments().do_eval is False


@pytest.mark.parametrize(
    ("settings", "every"),
    [({}, 500), ({"logging_steps": 20}, 20), ({"logging_steps": 20, "eval_steps": 30}, 30), ({"eval_steps": 0}, 500)],
)
def test_steps_between_evaluations(settings, every):
    assert TrainingArguments(eval_strategy="steps", **settings).eval_steps == every


def test_steps_between_evaluations_stay_unset_where_none_are_due():
    assert TrainingArguments().eval_steps is None


def test_the_best_model_is_that_of_the_lowest_loss():
    args = TrainingArguments(**BEST)
    assert (args.metric_for_best_model, args.greater_is_better) == ("loss", False)


@pytest.mark.parametrize(("metric", "higher"), [("eval_loss", False), ("accuracy", True), ("eval_fr_wer", False)])
def test_the_direction_of_a_known_metric(metric, higher):
    assert TrainingArguments(metric_for_best_model=metric).greater_is_better is higher


def test_an_unknown_metric_has_no_direction_until_one_is_needed():
    assert TrainingArguments(metric_for_best_model="score").greater_is_better is None
    with pytest.raises(SettingError, match=r"metric_for_best_model='score'.*`greater_is_better`"):
        TrainingArguments(**BEST, metric_for_best_model="score")
    with pytest.raises(SettingError, match=r"save_strategy='best'.*metric_for_best_model='score'.*`greater_is_better`"):
        TrainingArguments(eval_strategy="epoch", save_strategy="best", metric_for_best_model="score")


@pytest.mark.parametrize("higher", [True, False])
def test_a_direction_that_is_given_is_taken(higher):
    args = TrainingArguments(**BEST, metric_for_best_model="score", greater_is_better=higher)
    assert args.greater_is_better is higher


def test_an_unusual_direction_is_taken_and_mentioned(caplog):
    with caplog.at_level(logging.WARNING, "burnish"):
        args = TrainingArguments(**BEST, metric_for_best_model="accuracy", greater_is_better=False)
    assert args.greater_is_better is False
    assert "`metric_for_best_model='accuracy'` and `greater_is_better=False`" in caplog.text


def test_the_direction_follows_another_metric():
    args = TrainingArguments(**BEST)
    args.metric_for_best_model = "accuracy"
    assert args.greater_is_better is True


def test_a_given_direction_does_not_follow():
    args = TrainingArguments(metric_for_best_model="score", greater_is_better=True)
    args.metric_for_best_model = "other_score"
    assert args.greater_is_better is True


@pytest.mark.parametrize("name", ["gradient_checkpointing", "activation_checkpointing"])
@pytest.mark.parametrize("value", [True, False])
def test_both_names_of_checkpointing_agree(name, value):
    args = TrainingArguments(**{name: value})
    assert args.gradient_checkpointing is args.activation_checkpointing is value


def test_both_names_of_checkpointing_agree_after_an_assignment():
    args = TrainingArguments()
    assert args.gradient_checkpointing is args.activation_checkpointing is False
    args.gradient_checkpointing = "true"
    assert args.activation_checkpointing is True
    args.activation_checkpointing_kwargs = {"use_reentrant": False}
    assert args.gradient_checkpointing_kwargs == {"use_reentrant": False}


def test_two_names_with_two_values_are_a_contradiction():
    with pytest.raises(SettingError, match="`activation_checkpointing=False` and `gradient_checkpointing=True`"):
        TrainingArguments(activation_checkpointing=False, gradient_checkpointing=True)


@pytest.mark.parametrize("settings", [{"torch_compile_mode": "default"}, {"torch_compile_backend": "eager"}])
def test_a_mode_or_backend_switches_compilation_on(settings):
    args = TrainingArguments(**settings)
    assert args.torch_compile is True
    assert args.torch_compile_backend == settings.get("torch_compile_backend", "inductor")


def test_assigned_trackers_are_names_too():
    args = TrainingArguments()
    args.report_to = "wandb"
    assert args.report_to == ["wandb"]


def test_unknown_debug_options_are_refused():
    with pytest.raises(SettingError, match="underflow_overflow"):
        TrainingArguments(debug="underflow")
