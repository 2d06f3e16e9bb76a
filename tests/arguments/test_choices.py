"""Limited values are plain strings, and one that does not exist is met with those that do."""

import json

import pytest
import transformers

from burnish.arguments import choices
from burnish.arguments.training_arguments import TrainingArguments
from burnish.core.errors import SettingError

ENUMS = ("IntervalStrategy", "SaveStrategy", "HubStrategy", "SchedulerType")


@pytest.mark.parametrize("name", ENUMS)
def test_the_values_are_those_of_transformers(name):
    theirs = getattr(transformers.trainer_utils, name)
    assert [(m.name, m.value) for m in getattr(choices, name)] == [(m.name, m.value) for m in theirs]


@pytest.mark.newest
def test_the_optimizers_are_those_of_transformers():
    theirs = transformers.training_args.OptimizerNames
    assert [(m.name, m.value) for m in choices.OptimizerNames] == [(m.name, m.value) for m in theirs]


def test_a_value_is_a_plain_string():
    value = choices.IntervalStrategy("steps")
    assert value == "steps"
    assert value.value == "steps"
    assert f"{value}" == str(value) == "steps"
    assert {"steps": 1}[value] == 1
    assert json.dumps(value) == '"steps"'


@pytest.mark.parametrize(
    ("name", "value", "near"),
    [
        ("eval_strategy", "step", "steps"),
        ("save_strategy", "epochs", "epoch"),
        ("lr_scheduler_type", "cosin", "cosine"),
        ("optim", "AdamW_torch", "adamw_torch"),
        ("hub_strategy", "every-save", "every_save"),
        ("nonfinite_policy", "stopp", "stop"),
        ("log_level", "warn", "warning"),
        ("train_sampling_strategy", "sequentially", "sequential"),
        ("dataloader_multiprocessing_context", "spawned", "spawn"),
        ("ddp_backend", "ncll", "nccl"),
    ],
)
def test_an_unknown_value_is_refused_with_the_nearest_and_all_that_exist(name, value, near):
    with pytest.raises(SettingError) as refused:
        TrainingArguments(**{name: value})
    message = str(refused.value)
    assert f"`{name}` has no value {value!r}." in message
    assert f"Did you mean {near!r}?" in message
    assert "There is: " in message
    args = TrainingArguments()
    with pytest.raises(SettingError, match=f"`{name}`"):
        setattr(args, name, value)


def test_an_enum_itself_refuses_unknown_values_too():
    with pytest.raises(SettingError, match=r"SaveStrategy has no value 'bset'. Did you mean 'best'\?"):
        choices.SaveStrategy("bset")


def test_enums_of_transformers_are_taken():
    args = TrainingArguments(
        eval_strategy=transformers.IntervalStrategy.EPOCH,
        lr_scheduler_type=transformers.SchedulerType.COSINE,
        optim=transformers.training_args.OptimizerNames.SGD,
    )
    assert (args.eval_strategy, args.lr_scheduler_type, args.optim) == ("epoch", "cosine", "sgd")
    assert isinstance(args.eval_strategy, choices.IntervalStrategy)


@pytest.mark.parametrize("name", ["eval_strategy", "save_strategy", "logging_strategy"])
def test_no_as_yaml_reads_it(name):
    assert getattr(TrainingArguments(**{name: False}), name) == "no"


def test_an_assigned_value_becomes_the_enum():
    args = TrainingArguments()
    args.eval_strategy = "steps"
    assert args.eval_strategy is choices.IntervalStrategy.STEPS
