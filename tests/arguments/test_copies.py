"""Copies of every kind are equal and independent."""

import copy
import dataclasses
import logging
import pickle
import warnings
from dataclasses import dataclass

import pytest

from burnish.arguments.training_arguments import Seq2SeqTrainingArguments, TrainingArguments, snapshot


@dataclass
class WithField(TrainingArguments):
    adapter_rank: int = 8


def examples():
    return [
        TrainingArguments("out", learning_rate=1e-3, lr_scheduler_kwargs={"num_cycles": 2}),
        Seq2SeqTrainingArguments("out", eval_strategy="steps", predict_with_generate=True),
        WithField("out", adapter_rank=4, load_best_model_at_end=True, eval_strategy="epoch", save_strategy="epoch"),
    ]


WAYS = {
    "replace": dataclasses.replace,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda args: pickle.loads(pickle.dumps(args)),
    "snapshot": snapshot,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("args", examples(), ids=lambda args: type(args).__name__)
def test_a_copy_is_equal_and_of_the_same_class(way, args, caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copied = way(args)
    assert type(copied) is type(args)
    assert copied == args
    assert caplog.text == ""


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_copy_still_converts_and_speaks(way, caplog):
    copied = way(TrainingArguments("out"))
    copied.learning_rate = "1e-3"
    assert copied.learning_rate == 1e-3
    copied.gradient_checkpointing = True
    assert copied.activation_checkpointing is True
    with caplog.at_level(logging.WARNING, "burnish"):
        copied.use_liger_kernel = True
    assert "`use_liger_kernel=True` has no effect" in caplog.text


def test_replace_changes_what_it_is_told():
    args = WithField("out", adapter_rank=4)
    changed = dataclasses.replace(args, learning_rate="1e-3", adapter_rank=2)
    assert (changed.learning_rate, changed.adapter_rank, changed.output_dir) == (1e-3, 2, "out")
    assert (args.learning_rate, args.adapter_rank) == (5e-5, 4)


def test_a_snapshot_is_not_reached_by_later_changes():
    args = TrainingArguments("out", lr_scheduler_kwargs={"options": {"num_cycles": 2}}, label_names=["labels"])
    args.teacher = object()
    taken = snapshot(args)
    args.learning_rate = 1.0
    args.lr_scheduler_kwargs["options"]["num_cycles"] = 9
    args.label_names.append("more")
    assert taken.learning_rate == 5e-5
    assert taken.lr_scheduler_kwargs == {"options": {"num_cycles": 2}}
    assert taken.label_names == ["labels"]
    assert taken.teacher is args.teacher


def test_a_snapshot_has_what_follows_from_assignments_and_leaves_the_arguments_alone():
    args = TrainingArguments("out")
    args.eval_strategy = "steps"
    taken = snapshot(args)
    assert (taken.eval_steps, taken.do_eval) == (500, True)
    assert (args.eval_steps, args.do_eval) == (None, False)


def test_equality_is_by_value():
    assert TrainingArguments("out") == TrainingArguments("out")
    assert TrainingArguments("out") != TrainingArguments("out", seed=1)
