"""Words of a command line, and files of settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest

from burnish.cli.config_file import read_config
from burnish.cli.flags import Flag, flags_of
from burnish.cli.parse import parse
from burnish.core.errors import SettingError


class Rhythm(str, Enum):
    STEPS = "steps"
    EPOCH = "epoch"


@dataclass
class Fields:
    learning_rate: float = 5e-5
    max_steps: int = -1
    bf16: bool = False
    compile: bool | None = None
    eval_strategy: Rhythm | str = "no"
    report_to: str | list[str] | None = None
    metrics_for: list[str] = field(default_factory=list)
    scheduler_kwargs: dict[str, Any] | str | None = None
    resume: str | None = field(default=None, metadata={"nargs": "?", "const": True})
    warmup: int | float = 0


FLAGS = {flag.name: flag for flag in flags_of(Fields, "training", "Training")}


def values(*words: str) -> dict[str, Any]:
    return parse(words, FLAGS).values


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--learning_rate", "1e-4"], {"learning_rate": 1e-4}),
        (["--learning-rate=1e-4"], {"learning_rate": 1e-4}),
        (["--max_steps", "-1"], {"max_steps": -1}),
        (["--max_steps", "1e3"], {"max_steps": 1000}),
        (["--bf16"], {"bf16": True}),
        (["--bf16", "false"], {"bf16": False}),
        (["--bf16=True"], {"bf16": True}),
        (["--no_bf16"], {"bf16": False}),
        (["--no-compile"], {"compile": False}),
        (["--compile", "none"], {"compile": None}),
        (["--metrics_for", "inputs", "loss", "--bf16"], {"metrics_for": ["inputs", "loss"], "bf16": True}),
        (["--metrics_for=inputs,loss"], {"metrics_for": ["inputs", "loss"]}),
        (["--scheduler_kwargs", '{"num_cycles": 2}'], {"scheduler_kwargs": {"num_cycles": 2}}),
        (["--resume"], {"resume": True}),
        (["--resume", "out/checkpoint-3"], {"resume": "out/checkpoint-3"}),
        (["--report_to", '["wandb", "mlflow"]'], {"report_to": ["wandb", "mlflow"]}),
    ],
)
def test_a_flag_is_read_as_its_type(words, expected):
    assert values(*words) == expected


def test_a_boolean_leaves_the_word_after_it_alone():
    given = parse(["--bf16", "run.yaml"], FLAGS)
    assert given.values == {"bf16": True}
    assert given.words == ["run.yaml"]


def test_what_follows_two_dashes_is_no_flag():
    assert parse(["--", "--bf16"], FLAGS).words == ["--bf16"]


def test_an_unknown_flag_names_the_nearest():
    with pytest.raises(SettingError, match=r"no flag --learning_rat\. Did you mean --learning_rate\?"):
        values("--learning_rat", "1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--max_steps", "many"], "--max_steps many: a whole number"),
        (["--max_steps", "1.5"], "--max_steps 1.5: a whole number"),
        (["--bf16=maybe"], "--bf16 maybe: true or false"),
        (["--learning_rate"], "--learning_rate needs a value"),
        (["--learning_rate", "--bf16"], "--learning_rate needs a value"),
        (["--scheduler_kwargs", "{oops"], "JSON"),
    ],
)
def test_a_value_that_cannot_be_one_is_refused(words, said):
    with pytest.raises(SettingError) as error:
        values(*words)
    assert said in str(error.value)


def test_choices_come_from_an_enum_and_are_left_to_their_owner_unless_strict():
    assert FLAGS["eval_strategy"].choices == ("steps", "epoch")
    assert values("--eval_strategy", "something_old") == {"eval_strategy": "something_old"}
    task = Flag("task", "str", None, "", "", "task", choices=("a", "b"))
    with pytest.raises(SettingError, match="choose one of a, b"):
        task.convert("c")


def test_old_names_are_taken_as_they_are():
    given = parse(["--no_cuda", "--evaluation_strategy", "epoch"], FLAGS, frozenset({"no_cuda", "evaluation_strategy"}))
    assert given.values == {"no_cuda": True, "evaluation_strategy": "epoch"}


def test_flags_go_before_the_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("learning_rate: 1e-3\nmax-steps: 10\nbf16: true\n")
    given = parse(["--max_steps", "20", str(path)], FLAGS).over(read_config(path, FLAGS))
    assert given.values == {"learning_rate": 1e-3, "max_steps": 20, "bf16": True}
    assert given.origins == {"learning_rate": "file", "max_steps": "flag", "bf16": "file"}


def test_a_json_file_is_read_too(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"scheduler_kwargs": {"num_cycles": 2}, "learning_rate": 1}')
    assert read_config(path, FLAGS).values == {"scheduler_kwargs": {"num_cycles": 2}, "learning_rate": 1}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("run.yaml", "learning_rat: 1\n", "no setting 'learning_rat'. Did you mean 'learning_rate'"),
        ("run.yaml", "max_steps: many\n", "max_steps many: a whole number"),
        ("run.yaml", "max_steps: true\n", "max_steps True: a number"),
        ("run.yaml", "bf16: 3\n", "bf16 3: true or false"),
        ("run.yaml", "a: [1\nb: 2\n", "line 2: not YAML"),
        ("run.yaml", "- 1\n", "must hold names and values"),
        ("run.json", '{"a": 1,\n}', "line 2: not JSON"),
    ],
)
def test_a_wrong_file_names_the_place(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(SettingError) as error:
        read_config(path, FLAGS)
    assert said in str(error.value)
    assert str(path) in str(error.value)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(SettingError, match="There is no file"):
        read_config(tmp_path / "none.yaml", FLAGS)


def test_a_file_of_settings_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_bytes(b"run_name: caf\xe9\n")
    with pytest.raises(SettingError, match=r"run.yaml: byte 14 of the file is not UTF-8"):
        read_config(path, FLAGS)
