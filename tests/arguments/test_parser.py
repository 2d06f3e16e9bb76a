"""`burnish.HfArgumentParser` takes names of earlier releases, wherever they come from, as the constructor does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import transformers
import yaml

from burnish import HfArgumentParser, TrainingArguments
from burnish.arguments.base import UnknownSettingError
from burnish.core.errors import SettingError


@dataclass
class OfTheModel:
    model_name: str = "none"
    tp_size: int = 1
    """Also the name of a setting of an earlier release."""


def on_command_line(settings: dict[str, Any], folder: Path) -> Any:
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    return HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)[0]


def in_a_dict(settings: dict[str, Any], folder: Path) -> Any:
    return HfArgumentParser(TrainingArguments).parse_dict(settings)[0]


def in_json(settings: dict[str, Any], folder: Path) -> Any:
    (folder / "run.json").write_text(json.dumps(settings))
    return HfArgumentParser(TrainingArguments).parse_json_file(str(folder / "run.json"))[0]


def in_yaml(settings: dict[str, Any], folder: Path) -> Any:
    (folder / "run.yaml").write_text(yaml.safe_dump(settings))
    return HfArgumentParser(TrainingArguments).parse_yaml_file(str(folder / "run.yaml"))[0]


Read = Callable[[dict[str, Any], Path], Any]
WAYS = [on_command_line, in_a_dict, in_json, in_yaml]


@pytest.mark.parametrize("read", WAYS)
@pytest.mark.parametrize(
    ("old", "value", "name", "meant"),
    [
        ("evaluation_strategy", "epoch", "eval_strategy", "epoch"),
        ("group_by_length", True, "train_sampling_strategy", "group_by_length"),
        ("per_gpu_train_batch_size", 3, "per_device_train_batch_size", 3),
        ("warmup_ratio", 0.1, "warmup_steps", 0.1),
        ("include_inputs_for_metrics", True, "include_for_metrics", ["inputs"]),
        ("logging_dir", "logs", "output_dir", "out"),
    ],
)
def test_an_old_name_is_taken_with_a_warning(read: Read, old: str, value: Any, name: str, meant: Any, tmp_path: Path):
    with pytest.warns(FutureWarning, match=f"`{old}` is of an earlier release"):
        args = read({"output_dir": "out", "learning_rate": "1e-4", old: value}, tmp_path)
    assert getattr(args, name) == meant
    assert args.learning_rate == 1e-4


@pytest.mark.parametrize("read", WAYS)
def test_an_unknown_name_is_refused_with_what_was_meant(read: Read, tmp_path: Path) -> None:
    with pytest.raises(UnknownSettingError, match=r"no argument `learning_rte`\. Did you mean `learning_rate`"):
        read({"output_dir": "out", "learning_rte": 1}, tmp_path)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_old_name_and_its_new_one_that_differ() -> None:
    with pytest.raises(SettingError, match="`evaluation_strategy` = 'epoch' and `eval_strategy` = 'steps'"):
        on_command_line({"evaluation_strategy": "epoch", "eval_strategy": "steps"}, Path())


def test_switches_and_values_after_an_equals_sign() -> None:
    parser = HfArgumentParser(TrainingArguments)
    with pytest.warns(FutureWarning, match="earlier release"):
        (args,) = parser.parse_args_into_dataclasses(["--no_cuda", "--evaluation-strategy=epoch", "--bf16", "False"])
    assert args.use_cpu and args.eval_strategy == "epoch" and not args.bf16


def test_several_classes_keep_their_own_names() -> None:
    parser = HfArgumentParser((OfTheModel, TrainingArguments))
    model, args = parser.parse_args_into_dataclasses(["--tp_size", "2", "--model_name", "b", "--max_steps", "3"])
    assert (model.tp_size, model.model_name, args.max_steps) == (2, "b", 3)
    model, args, rest = parser.parse_args_into_dataclasses(["--epochs", "3"], return_remaining_strings=True)
    assert rest == ["--epochs", "3"]
    model, args = parser.parse_dict({"tp_size": 4, "other": 1}, allow_extra_keys=True)
    assert model.tp_size == 4


def test_without_settings_of_ours_nothing_is_translated() -> None:
    parser = HfArgumentParser(OfTheModel)
    assert isinstance(parser, transformers.HfArgumentParser)
    with pytest.raises(UnknownSettingError, match="no argument `no_cuda`"):
        parser.parse_args_into_dataclasses(["--no_cuda"])
