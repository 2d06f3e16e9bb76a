"""Contradictions are refused with both names and both values."""

import pytest

from burnish.arguments.training_arguments import TrainingArguments, snapshot
from burnish.core.errors import SettingError


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"fp16": True, "bf16": True}, ["fp16=True", "bf16=True"]),
        ({"fp16_full_eval": True, "bf16_full_eval": True}, ["fp16_full_eval=True", "bf16_full_eval=True"]),
        ({"logging_steps": 0}, ["logging_strategy='steps'", "logging_steps=0"]),
        ({"save_steps": 0}, ["save_strategy='steps'", "save_steps=0"]),
        ({"load_best_model_at_end": True}, ["load_best_model_at_end=True", "eval_strategy='no'"]),
        (
            {"load_best_model_at_end": True, "save_strategy": "no"},
            ["load_best_model_at_end=True", "eval_strategy='no'"],
        ),
        (
            {"load_best_model_at_end": True, "eval_strategy": "epoch"},
            ["eval_strategy='epoch'", "save_strategy='steps'"],
        ),
        ({"save_strategy": "best"}, ["save_strategy='best'", "eval_strategy='no'"]),
        (
            {"lr_scheduler_type": "reduce_lr_on_plateau"},
            ["lr_scheduler_type='reduce_lr_on_plateau'", "eval_strategy='no'"],
        ),
        ({"dataloader_prefetch_factor": 2}, ["dataloader_prefetch_factor=2", "dataloader_num_workers=0"]),
        ({"dataloader_persistent_workers": True}, ["dataloader_persistent_workers=True", "dataloader_num_workers=0"]),
        ({"num_train_epochs": -1}, ["num_train_epochs=-1", "max_steps=-1"]),
        ({"optim_in_backward": True}, ["optim_in_backward=True", "max_grad_norm=1.0"]),
        ({"packing_length": 512}, ["packing_length=512", "packing=False"]),
        (
            {"packing": True, "train_sampling_strategy": "group_by_length"},
            ["packing=True", "train_sampling_strategy='group_by_length'"],
        ),
    ],
)
def test_a_contradiction_is_refused(settings, named):
    with pytest.raises(SettingError) as refused:
        TrainingArguments(**settings)
    for setting in named:
        assert f"`{setting}`" in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 4},
        {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 3, "save_steps": 4},
        {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 0.1, "save_steps": 7},
        {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "best"},
        {"num_train_epochs": -1, "max_steps": 10},
        {"logging_strategy": "no", "logging_steps": 0},
        {"dataloader_num_workers": 2, "dataloader_prefetch_factor": 2, "dataloader_persistent_workers": True},
    ],
)
def test_what_does_not_contradict_is_taken(settings):
    args = TrainingArguments(**settings)
    assert all(getattr(args, name) == value for name, value in settings.items())


def test_a_contradiction_that_was_assigned_is_found_when_the_run_begins():
    args = TrainingArguments(fp16=True)
    args.bf16 = True
    with pytest.raises(SettingError, match="`fp16=True` and `bf16=True`"):
        snapshot(args)
