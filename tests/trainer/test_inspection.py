"""What users ask a trainer, in numbers that can be counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch.utils.data import DataLoader
from trainer import runs

from burnish import Trainer
from burnish.core.errors import SettingError
from burnish.models.flops import flops_per_token


def test_rates_and_groups_of_the_optimizer(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, max_steps=1, lr_scheduler_type="constant")
    with pytest.raises(SettingError, match="no optimizer yet"):
        run.get_learning_rates()
    with pytest.raises(SettingError, match="no optimizer yet"):
        run.get_optimizer_group()
    run.train()
    assert run.get_learning_rates() == [1e-3, 1e-3]
    groups = run.get_optimizer_group()
    assert sum(len(group) for group in groups) == len(list(run.model.parameters()))
    bias = run.model.classifier.bias
    assert run.get_optimizer_group(bias) is run.optimizer.param_groups[1]
    assert run.get_optimizer_group(torch.nn.Parameter(torch.zeros(2))) is None


def test_the_rows_of_an_update(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, gradient_accumulation_steps=3)
    assert run.get_total_train_batch_size() == run.get_total_train_batch_size(run.args) == 12


def test_tokens_and_operations(tmp_path: Path) -> None:
    rows = tiny.class_rows(6)
    run = runs.trainer(tmp_path, parts={"train_dataset": rows})
    loader = run.get_train_dataloader()
    tokens = sum(len(row["input_ids"]) for row in rows)
    assert Trainer.num_tokens(loader) == run.num_tokens(loader) == tokens
    first = next(iter(loader))
    assert run.num_tokens(loader, 1) == int(first["attention_mask"].sum())
    assert run.num_tokens(loader, 2 * len(loader)) == 2 * tokens
    assert run.floating_point_ops(first) == flops_per_token(run.model) * int(first["attention_mask"].sum())
    run.model.floating_point_ops = lambda inputs: 7
    assert run.floating_point_ops(first) == 7
    assert run.num_examples(DataLoader(rows)) == 6


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"optimizers": torch.optim.SGD([torch.zeros(1)], lr=1.0)}, r"optimizers=SGD is no pair.*\(optimizer, None\)"),
        ({"callbacks": EOFError}, r"callbacks must be a list.*callbacks=\[EOFError\(…\)\]"),
        ({"data_collator": "pads"}, r"data_collator='pads' cannot be called"),
    ],
)
def test_parts_of_another_kind_are_refused(tmp_path: Path, parts: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        runs.trainer(tmp_path, parts=parts)


def test_no_parts_are_the_usual_ones(tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, parts={"optimizers": None, "callbacks": None}, max_steps=1)
    assert run.train().global_step == 1


@pytest.mark.parametrize(
    ("name", "meant"), [("feature_extractor", "processing_class"), ("collate_fn", "data_collator")]
)
def test_names_of_other_libraries_are_told(tmp_path: Path, name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"no argument '{name}'. Did you mean '{meant}'"):
        runs.trainer(tmp_path, parts={name: None})


def test_a_model_init_of_any_signature(tmp_path: Path) -> None:
    def with_changes(**changes: Any) -> Any:
        return runs.classifier(**changes)

    def with_trial(trial: Any) -> Any:
        assert trial in (None, "a trial")
        return runs.classifier()

    for init in (runs.classifier, with_changes, with_trial, lambda trial=None: runs.classifier()):
        run = runs.trainer(tmp_path, parts={"model_init": init}, max_steps=1)
        assert run.train(trial="a trial").global_step == 1
