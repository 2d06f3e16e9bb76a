"""Every setting does something, or says that it does not."""

from __future__ import annotations

import ast
import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import source_tree
import tiny
import torch
from trainer import runs

import burnish.callbacks.memory
from burnish.arguments.training_arguments import Seq2SeqTrainingArguments
from burnish.arguments.without_effect import NO_EFFECT

READ_BY_ARGUMENTS = {
    "activation_checkpointing": "another name of gradient_checkpointing",
    "activation_checkpointing_kwargs": "another name of gradient_checkpointing_kwargs",
    "log_on_each_node": "by should_log, which says whose log level counts",
}
"""Fields that only the arguments' own methods read, which others call."""

READ_BY_INTEGRATIONS = {"run_name", "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"}
"""Fields that the reporting callbacks of transformers read."""

ALWAYS_ON = {"auto_find_batch_size"}
"""Fields whose behaviour is there whether they are set or not, as their help says."""

READ_BY_SCRIPTS = {"do_train", "do_eval", "do_predict"}


def words(file: Path) -> Iterator[str]:
    """Attributes and texts in a file: what it may read of an object."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_field_is_read_or_listed() -> None:
    """Outside the room of the arguments, by name."""
    arguments_room = source_tree.PACKAGE / "arguments"
    read = {word for file in source_tree.files() if arguments_room not in file.parents for word in words(file)}
    listed = {*NO_EFFECT, *READ_BY_ARGUMENTS, *READ_BY_INTEGRATIONS, *READ_BY_SCRIPTS, *ALWAYS_ON}
    fields = {field.name for field in dataclasses.fields(Seq2SeqTrainingArguments)}
    assert fields - read - listed == set()
    assert listed <= fields


def test_what_integrations_read() -> None:
    from transformers.integrations import integration_utils

    read = set(words(Path(integration_utils.__file__)))
    assert {"run_name", "project"} <= read


# ---------------------------------------------------------------- fields that were read nowhere once


def test_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every so many steps; never where it is not asked for."""
    steps: list[int] = []
    run = runs.trainer(tmp_path, max_steps=7, torch_empty_cache_steps=3)
    monkeypatch.setattr(burnish.callbacks.memory, "empty_cache", lambda: steps.append(run.state.global_step))
    run.train()
    assert steps == [3, 6]
    runs.trainer(tmp_path, max_steps=3).train()
    assert steps == [3, 6]


@pytest.mark.parametrize("level", ["passive", "debug", "error"])
def test_log_level(level: str, tmp_path: Path) -> None:
    """In force while the trainer works, and put back."""
    messages = logging.getLogger("burnish")
    before = messages.level
    seen: list[int] = []

    class Looks(burnish.TrainerCallback):
        def on_step_end(self, *args: Any, **details: Any) -> None:
            seen.append(messages.level)

        on_prediction_step = on_step_end

    run = runs.trainer(tmp_path, parts={"callbacks": [Looks()]}, max_steps=1, log_level=level)
    run.train()
    run.predict(tiny.class_rows(2))
    expected = {"passive": before, "debug": logging.DEBUG, "error": logging.ERROR}[level]
    assert seen == [expected] * 2
    assert messages.level == before


def test_warmup_of_a_schedule_free_optimizer(tmp_path: Path) -> None:
    pytest.importorskip("schedulefree")
    run = runs.trainer(tmp_path, max_steps=10, optim="schedule_free_adamw", warmup_steps=0.3)
    run.train()
    assert run.optimizer.param_groups[0]["warmup_steps"] == 3


SEEDED: dict[str, dict[str, Any]] = {
    "seed": {"seed": 1},
    "data_seed": {"data_seed": 1},
    "learning_rate": {"learning_rate": 1e-2},
    "weight_decay": {"weight_decay": 0.5},
    "adam_beta1": {"adam_beta1": 0.5},
    "adam_beta2": {"adam_beta2": 0.5},
    "adam_epsilon": {"adam_epsilon": 1e-2},
    "max_grad_norm": {"max_grad_norm": 1e-3, "optim": "sgd"},
    "optim": {"optim": "adagrad"},
    "lr_scheduler_type": {"lr_scheduler_type": "cosine"},
    "warmup_steps": {"warmup_steps": 3},
    "label_smoothing_factor": {"label_smoothing_factor": 0.3},
    "neftune_noise_alpha": {"neftune_noise_alpha": 5.0},
    "bf16": {"bf16": True},
    "fp16": {"fp16": True},
    "train_sampling_strategy": {"train_sampling_strategy": "group_by_length"},
    "gradient_accumulation_steps": {"gradient_accumulation_steps": 2},
    "per_device_train_batch_size": {"per_device_train_batch_size": 3},
}


@pytest.fixture(scope="module")
def plain_weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    run = runs.trainer(tmp_path_factory.mktemp("plain"), parts={"model": dropping()}, max_steps=6)
    run.train()
    return runs.weights(run.model)


def dropping() -> Any:
    return runs.classifier(hidden_dropout_prob=0.1)


@pytest.mark.parametrize("name", SEEDED)
def test_settings_change_the_weights(name: str, plain_weights: dict[str, torch.Tensor], tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, parts={"model": dropping()}, max_steps=6, **SEEDED[name])
    run.train()
    assert runs.difference(plain_weights, run.model) > 1e-7
