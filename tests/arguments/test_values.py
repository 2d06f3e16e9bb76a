"""Texts, numbers of other libraries and YAML's readings become what a field holds, or are refused by name."""

from pathlib import Path

import numpy as np
import pytest
import torch

from burnish.arguments.training_arguments import TrainingArguments
from burnish.core.errors import SettingError

GIVEN_AND_HELD = [
    ("learning_rate", "1e-4", 1e-4),
    ("learning_rate", " 3 ", 3),
    ("learning_rate", np.float32(0.5), 0.5),
    ("learning_rate", torch.tensor(0.25), 0.25),
    ("max_grad_norm", "inf", float("inf")),
    ("num_train_epochs", "0.5", 0.5),
    ("max_steps", "5", 5),
    ("max_steps", "1e3", 1000),
    ("max_steps", 4.0, 4),
    ("max_steps", np.int64(7), 7),
    ("seed", "12345678901234567890", 12345678901234567890),
    ("save_total_limit", "none", None),
    ("save_total_limit", "2", 2),
    ("save_total_limit", 0, None),
    ("fp16", "True", True),
    ("fp16", "false", False),
    ("fp16", "on", True),
    ("fp16", 1, True),
    ("tf32", "no", False),
    ("tf32", "none", None),
    ("warmup_steps", "0.1", 0.1),
    ("warmup_steps", "100", 100),
    ("logging_steps", 10.0, 10),
    ("save_steps", "0.25", 0.25),
    ("label_names", "labels", ["labels"]),
    ("label_names", "start_positions,end_positions", ["start_positions", "end_positions"]),
    ("label_names", '["a", "b"]', ["a", "b"]),
    ("label_names", ("a", "b"), ["a", "b"]),
    ("include_for_metrics", None, []),
    ("lr_scheduler_kwargs", '{"num_cycles": "2", "min_lr": 1e-6}', {"num_cycles": 2, "min_lr": 1e-6}),
    ("gradient_checkpointing_kwargs", '{"use_reentrant": "False"}', {"use_reentrant": False}),
    ("run_name", 2024, "2024"),
    ("run_name", "none", "none"),
    ("output_dir", Path("here") / "out", "here/out"),
    ("resume_from_checkpoint", True, True),
    ("resume_from_checkpoint", "True", True),
    ("resume_from_checkpoint", "out/checkpoint-5", "out/checkpoint-5"),
    ("trackio_static_space_id", False, False),
    ("include_num_input_tokens_seen", True, "all"),
    ("include_num_input_tokens_seen", "False", "no"),
    ("include_num_input_tokens_seen", "non_padding", "non_padding"),
    ("report_to", None, []),
    ("report_to", "none", []),
    ("report_to", ["none"], []),
    ("report_to", "wandb", ["wandb"]),
    ("report_to", "wandb,tensorboard", ["wandb", "tensorboard"]),
    ("report_to", "all", ["all"]),
    ("generation_max_length", "20", 20),
]


def arguments(name, value):
    from burnish.arguments.training_arguments import Seq2SeqTrainingArguments

    return Seq2SeqTrainingArguments(**{name: value})


def same(held, expected):
    return held == expected and type(held) is type(expected)


@pytest.mark.parametrize(("name", "given", "held"), GIVEN_AND_HELD)
def test_a_value_becomes_what_the_field_holds(name, given, held):
    assert same(getattr(arguments(name, given), name), held)


@pytest.mark.parametrize("name", ["learning_rate", "max_steps", "fp16", "warmup_steps", "save_total_limit"])
def test_an_assigned_text_becomes_the_same_value(name):
    args = TrainingArguments()
    for field, given, held in GIVEN_AND_HELD:
        if field == name and given != 0:
            setattr(args, name, given)
            assert same(getattr(args, name), held)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("learning_rate", "fast", "a number"),
        ("learning_rate", "nan", "a number"),
        ("learning_rate", True, "a number"),
        ("learning_rate", [1e-4], "a number"),
        ("learning_rate", None, "a number"),
        ("max_steps", "4.5", "a whole number"),
        ("max_steps", 4.5, "a whole number"),
        ("max_steps", "ten", "a whole number"),
        ("seed", float("inf"), "a whole number"),
        ("fp16", "maybe", "true or false"),
        ("fp16", 2, "true or false"),
        ("fp16", None, "true or false"),
        ("label_names", {"labels": 1}, "a list"),
        ("run_name", True, "text"),
        ("output_dir", ["out"], "text"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(name, value, expected):
    with pytest.raises(SettingError) as refused:
        TrainingArguments(**{name: value})
    assert f"`{name}`" in str(refused.value)
    assert repr(value) in str(refused.value)
    assert expected in str(refused.value)
    args = TrainingArguments()
    with pytest.raises(SettingError, match=f"`{name}`"):
        setattr(args, name, value)


def test_broken_json_says_where_it_breaks():
    with pytest.raises(SettingError, match=r"`lr_scheduler_kwargs` is not valid JSON.*character 1.*double quotes"):
        TrainingArguments(lr_scheduler_kwargs="{'num_cycles': 2}")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("learning_rate", -1e-4, "0 or more"),
        ("per_device_train_batch_size", 0, "1 or more"),
        ("per_device_eval_batch_size", "0", "1 or more"),
        ("gradient_accumulation_steps", 0, "1 or more"),
        ("weight_decay", -0.1, "0 or more"),
        ("adam_beta2", 1.0, "from 0 to below 1"),
        ("label_smoothing_factor", 1.5, "from 0 to 1"),
        ("warmup_steps", -1, "0 or more"),
        ("max_steps", 0, "num_train_epochs"),
        ("max_steps", -2, "num_train_epochs"),
        ("logging_steps", -5, "0 or more"),
        ("save_steps", 1.5, "whole"),
        ("token_budget", 0, "1 or more"),
        ("dataloader_num_workers", -1, "0 or more"),
        ("torch_empty_cache_steps", 0, "1 or more"),
        ("hang_timeout", -1.0, "0 or more"),
    ],
)
def test_a_number_outside_its_limits_is_refused(name, value, allowed):
    with pytest.raises(SettingError, match=f"`{name}` = .*{allowed}"):
        TrainingArguments(**{name: value})
    args = TrainingArguments()
    before = getattr(args, name)
    with pytest.raises(SettingError, match=f"`{name}`"):
        setattr(args, name, value)
    assert getattr(args, name) == before


def test_a_list_or_dict_that_was_given_is_not_changed():
    kwargs, names = {"num_cycles": 2}, ["labels"]
    args = TrainingArguments(lr_scheduler_kwargs=kwargs, label_names=names)
    assert args.lr_scheduler_kwargs is kwargs
    assert args.label_names is names
    assert (kwargs, names) == ({"num_cycles": 2}, ["labels"])


@pytest.mark.parametrize("name", ["learning_rate", "num_train_epochs", "weight_decay"])
def test_an_infinite_number_is_refused_where_nothing_could_be_computed(name):
    with pytest.raises(SettingError, match=f"`{name}` = inf: expected a finite number"):
        TrainingArguments("out", **{name: "inf"})
    assert TrainingArguments("out", max_grad_norm="inf").max_grad_norm == float("inf")
