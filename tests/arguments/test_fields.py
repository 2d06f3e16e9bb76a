"""The fields are those of transformers, with its defaults, except where burnish differs on purpose."""

import argparse
import dataclasses
import importlib

import pytest
import transformers

from burnish.arguments import fields as groups
from burnish.arguments.training_arguments import Seq2SeqTrainingArguments, TrainingArguments

OURS = {
    "nonfinite_policy": "stop",
    "save_async": True,
    "save_minutes": None,
    "keep_last": None,
    "keep_best": None,
    "keep_every_steps": None,
    "keep_every_minutes": None,
    "max_time": None,
    "fit_schedule_to_max_time": False,
    "token_budget": None,
    "trim_padding": True,
    "padding_free": None,
    "logits_at_targets": True,
    "optim_in_backward": False,
    "packing": False,
    "packing_length": None,
    "measure_peak": False,
    "hang_timeout": 600.0,
    "split_stream": False,
}
OF_TEXTS = {"generation_max_rows": 500, "generation_prompt_column": None, "generation_texts_shown": 3}
DIFFERENT = {"logging_steps": None, "logging_first_step": True}
PAIRS = [
    (TrainingArguments, transformers.TrainingArguments),
    (Seq2SeqTrainingArguments, transformers.Seq2SeqTrainingArguments),
]


def defaults(cls):
    """Default of each field that the constructor takes."""
    return {
        f.name: f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        for f in dataclasses.fields(cls)
        if f.init
    }


def own(cls):
    return {**OURS, **(OF_TEXTS if cls is Seq2SeqTrainingArguments else {})}


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.newest
def test_names_are_those_of_transformers(ours, theirs):
    assert set(defaults(ours)) - set(defaults(theirs)) == set(own(ours))
    assert set(defaults(theirs)) - set(defaults(ours)) == set()


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.newest
def test_defaults_are_those_of_transformers(ours, theirs):
    expected = {**defaults(theirs), **DIFFERENT, **own(ours)}
    assert defaults(ours) == expected


def test_the_first_positional_arguments_are_those_of_transformers():
    first = [f.name for f in dataclasses.fields(TrainingArguments)][:4]
    assert first == [f.name for f in dataclasses.fields(transformers.TrainingArguments)][:4]
    assert TrainingArguments("here").output_dir == "here"


@pytest.mark.parametrize("field", dataclasses.fields(Seq2SeqTrainingArguments), ids=lambda field: field.name)
def test_every_field_has_help_that_a_parser_can_format(field):
    assert len(field.metadata["help"]) > 10
    assert set(field.metadata) <= {"help", "choices", "nargs", "const"}
    parser = argparse.ArgumentParser()
    parser.add_argument(f"--{field.name}", help=field.metadata["help"])
    assert f"--{field.name}" in parser.format_help()


def test_every_field_is_declared_in_one_group():
    found = []
    for name in ("training", "optimization", "evaluation", "saving", "logs", "trackers", "data", "precision", "memory"):
        found += declared(name)
    for name in ("compilation", "distributed", "hub", "step", "seq2seq"):
        found += declared(name)
    assert sorted(found) == sorted(f.name for f in dataclasses.fields(Seq2SeqTrainingArguments))


def declared(name):
    module = importlib.import_module(f"{groups.__name__}.{name}")
    (cls,) = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]
    return list(cls.__annotations__)
