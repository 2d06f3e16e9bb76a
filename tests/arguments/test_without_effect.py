"""A field that does nothing says so when it is set, and never otherwise."""

import dataclasses
import logging

import pytest

from burnish.arguments.training_arguments import Seq2SeqTrainingArguments, TrainingArguments
from burnish.arguments.without_effect import NO_EFFECT, VALUE_WITHOUT_EFFECT, fields_without_effect

SET = {
    "accelerator_config": {"split_batches": True},
    "ddp_backend": "gloo",
    "ddp_bucket_cap_mb": 25,
    "ddp_timeout": 60,
    "debug": "underflow_overflow",
    "liger_kernel_config": '{"rms_norm": true}',
    "local_rank": 3,
    "optim_target_modules": "all-linear",
    "parallelism_config": object(),
}


def away_from_default(name):
    if name in SET:
        return SET[name]
    default = {f.name: f.default for f in dataclasses.fields(Seq2SeqTrainingArguments)}[name]
    return not default


def warned(caplog):
    return [record.getMessage() for record in caplog.records if record.name.startswith("burnish")]


def test_every_entry_is_a_field():
    names = {f.name for f in dataclasses.fields(Seq2SeqTrainingArguments)}
    assert {*NO_EFFECT, *(name for name, _ in VALUE_WITHOUT_EFFECT)} <= names


@pytest.mark.parametrize("name", sorted(NO_EFFECT))
def test_a_field_without_effect_says_so_once(name, caplog):
    with caplog.at_level(logging.WARNING, "burnish"):
        args = Seq2SeqTrainingArguments(**{name: away_from_default(name)})
    (message,) = warned(caplog)
    assert message.startswith(f"`{name}=")
    assert message.endswith(f"has no effect: {NO_EFFECT[name]}.")
    assert fields_without_effect(args) == [name]


@pytest.mark.parametrize("name", ["save_on_each_node", "use_liger_kernel"])
def test_a_field_without_effect_says_so_when_it_is_assigned(name, caplog):
    args = TrainingArguments()
    with caplog.at_level(logging.WARNING, "burnish"):
        setattr(args, name, True)
    assert len(warned(caplog)) == 1
    assert f"`{name}=True` has no effect" in caplog.text


def test_a_value_without_effect_says_so(caplog):
    with caplog.at_level(logging.WARNING, "burnish"):
        TrainingArguments(train_sampling_strategy="batch_rebalance")
        TrainingArguments(train_sampling_strategy="sequential")
    (message,) = warned(caplog)
    assert "`train_sampling_strategy=batch_rebalance` has no effect" in message.replace("'", "")


def test_defaults_say_nothing(caplog):
    with caplog.at_level(logging.WARNING, "burnish"):
        args = Seq2SeqTrainingArguments(use_liger_kernel=False, fsdp="", deepspeed=None, fsdp_config={}, debug="")
    assert warned(caplog) == []
    assert fields_without_effect(args) == []


def test_the_local_rank_of_the_launcher_says_nothing(caplog, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    with caplog.at_level(logging.WARNING, "burnish"):
        TrainingArguments(local_rank="1")
    assert warned(caplog) == []
