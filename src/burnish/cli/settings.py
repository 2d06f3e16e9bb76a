"""From what a user gave to the objects that the task and the trainer take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.core.errors import SettingError
from burnish.core.secrets import hidden, is_secret
from burnish.tasks.recipe import DataRequest, ModelRequest

from .config_file import read_config
from .flags import Flag
from .parse import Given, parse
from .schema import DEFAULT_TASK, RUN_FLAGS, required

if TYPE_CHECKING:
    from burnish.arguments.training_arguments import TrainingArguments

BECAUSE_OF_VALIDATION = "validation data"
"""Origin of the settings that the command chooses where there are rows to evaluate on."""


@dataclass
class Settings:
    """All settings of a command, sorted by who takes them."""

    task: str
    data: DataRequest
    model: ModelRequest
    training: dict[str, Any]
    """What the user gave for TrainingArguments, old names included."""
    run: dict[str, Any]
    origins: dict[str, str]
    command: str

    @property
    def output_dir(self) -> Path:
        return Path(self.training["output_dir"])

    def arguments(self, chosen: Mapping[str, Any] | None = None) -> TrainingArguments:
        """The training arguments: what the user gave, over what the command chooses."""
        from burnish.arguments.training_arguments import Seq2SeqTrainingArguments

        return Seq2SeqTrainingArguments(**{**(chosen or {}), **self.training})


def read_settings(words: Sequence[str], flags: Mapping[str, Flag], old_names: frozenset[str], command: str) -> Settings:
    """The settings of a command line: its flags over those of its file. Raises `SettingError`."""
    given = parse(words, flags, old_names)
    if len(given.words) > 1:
        raise SettingError(f"One file of settings is taken, not {len(given.words)}: {' '.join(given.words)}.")
    if given.words:
        given = given.over(read_config(Path(given.words[0]), flags, old_names))
    return _sorted(given, flags, command)


def _sorted(given: Given, flags: Mapping[str, Flag], command: str) -> Settings:
    from burnish.arguments.old_names import translate

    _check_required(given)
    values = dict(given.values)
    by_owner: dict[str, dict[str, Any]] = {"task": {}, "data": {}, "model": {}, "run": {}, "training": {}}
    for name, value in values.items():
        by_owner[flags[name].owner if name in flags else "training"][name] = value
    training = translate(by_owner["training"])
    origins = {**dict.fromkeys(training, "flag"), **given.origins}  # an old name's origin goes to its new name
    seed = training.get("seed")
    if seed is not None:
        by_owner["data"]["seed"] = int(seed)
    data = DataRequest(**by_owner["data"])
    run = {flag.name: by_owner["run"].get(flag.name, flag.default) for flag in RUN_FLAGS}
    task = by_owner["task"].get("task", DEFAULT_TASK)
    model = ModelRequest(**by_owner["model"])
    return Settings(task, data, model, training, run, origins, command)


def _check_required(given: Given) -> None:
    missing = [name for name in (*required(ModelRequest), "output_dir") if not given.values.get(name)]
    if missing:
        raise SettingError(
            f"Missing: {', '.join(f'--{name}' for name in missing)}. For example:\n"
            "  burnish train --model_name_or_path MODEL --train_file train.csv --validation_file validation.csv "
            "--output_dir out"
        )
    if not any(given.values.get(name) for name in ("train_file", "validation_file", "test_file", "dataset_name")):
        raise SettingError("No data: give --train_file (and --validation_file), or --dataset_name.")


def with_validation(settings: Settings) -> dict[str, Any]:
    """What the command chooses where there are rows to evaluate on and the user said nothing: evaluate and save after
    each epoch, keep the best and the newest checkpoint, end with the best. A number of steps that is given, such as
    `save_steps`, is meant: then it is by steps."""
    given = settings.training
    by = {name: "steps" if f"{name}_steps" in given else "epoch" for name in ("eval", "save")}
    evaluated = str(given.get("eval_strategy", given.get("evaluation_strategy", by["eval"])))
    saved = str(given.get("save_strategy", by["save"]))
    chosen: dict[str, Any] = {"eval_strategy": evaluated}
    if evaluated == "epoch":
        chosen["save_strategy"] = saved
    if evaluated == saved == "epoch" and given.get("load_best_model_at_end", True):
        chosen |= {"load_best_model_at_end": True, "save_total_limit": 2}
    return {name: value for name, value in chosen.items() if name not in given}


def recorded(settings: Settings, arguments: Any, chosen: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every setting with its value and origin, for the manifest of the run, so that it can be run again. Tokens are
    left out."""
    from burnish.arguments.origins import DERIVED, with_origins

    requests = {**vars(settings.data), **vars(settings.model)}
    found = {name: {"value": hidden(value)} for name, value in requests.items() if not is_secret(name)}
    of_run = {name: {"value": value} for name, value in settings.run.items()}
    for name, setting in {**found, **with_origins(arguments), **of_run}.items():
        otherwise = DERIVED if setting.get("origin") == DERIVED else "default"
        because = BECAUSE_OF_VALIDATION if name in chosen else otherwise
        found[name] = {**setting, "origin": settings.origins.get(name, because)}
    return found
