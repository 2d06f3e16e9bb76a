"""The configuration of DeepSpeed, filled from the arguments and compared with them; without the package."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import logging
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from burnish.arguments.training_arguments import TrainingArguments
from burnish.cli.plan import device
from burnish.core.errors import CheckpointError, SettingError
from burnish.core.zero_settings import stage_of
from burnish.engines import deepspeed_config as configuration
from burnish.engines import deepspeed_ops, deepspeed_universal
from burnish.engines.choice import engine_for

HIDDEN = 48


def arguments(config: Any, **changes: Any) -> TrainingArguments:
    settings = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3, "use_cpu": True, **changes}
    return TrainingArguments("out", deepspeed=config, report_to="none", **settings)


def filled(config: Any, processes: int = 2, on_cpu: bool = True, **changes: Any) -> dict[str, Any]:
    return configuration.filled(config, arguments(config, **changes), processes, on_cpu)


def completed(config: Any, num_steps: int = 100, model: Any = None, **changes: Any) -> dict[str, Any]:
    args = arguments(config, **changes)
    return configuration.completed(configuration.filled(config, args, 2, True), args, num_steps, model)


AUTO = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "train_batch_size": "auto",
    "gradient_clipping": "auto",
    "fp16": {"enabled": "auto"},
    "bf16": {"enabled": "auto"},
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
    },
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "warmup_min_lr": "auto",
            "warmup_max_lr": "auto",
            "warmup_num_steps": "auto",
            "total_num_steps": "auto",
        },
    },
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
    },
}


def test_every_auto_is_filled() -> None:
    given = json.loads(json.dumps(AUTO))
    settings = {"bf16": True, "learning_rate": 3e-4, "weight_decay": 0.1, "adam_beta2": 0.95, "adam_epsilon": 1e-6}
    found = completed(given, model=SimpleNamespace(hidden_size=HIDDEN), warmup_steps=10, max_grad_norm=0.5, **settings)
    assert given == AUTO, "what the user gave is left as it is"
    assert (found["train_micro_batch_size_per_gpu"], found["gradient_accumulation_steps"]) == (4, 3)
    assert found["train_batch_size"] == 24 and found["gradient_clipping"] == 0.5
    assert found["bf16"]["enabled"] is True and found["fp16"]["enabled"] is False
    expected = {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-6, "weight_decay": 0.1, "torch_adam": True}
    assert found["optimizer"]["params"] == expected
    expected = {"warmup_min_lr": 0.0, "warmup_max_lr": 3e-4, "warmup_num_steps": 10, "total_num_steps": 100}
    assert found["scheduler"]["params"] == expected
    zero = found["zero_optimization"]
    assert zero["reduce_bucket_size"] == HIDDEN * HIDDEN
    assert zero["stage3_prefetch_bucket_size"] == int(0.9 * HIDDEN * HIDDEN)
    assert zero["stage3_param_persistence_threshold"] == 10 * HIDDEN


def test_what_the_configuration_does_not_say_is_as_the_arguments_say() -> None:
    found = filled({"zero_optimization": {"stage": 2}}, fp16=True, max_grad_norm=0)
    assert found["train_batch_size"] == 24 and found["gradient_clipping"] == 0.0
    assert found["fp16"] == {"enabled": True} and "bf16" not in found
    assert found["zero_force_ds_cpu_optimizer"] is False, "the optimizer of the arguments is the one that runs"
    assert "optimizer" not in found and "scheduler" not in found


def test_all_contradictions_are_said_at_once_with_both_values() -> None:
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "train_batch_size": 999,
        "gradient_clipping": 1,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.8, 0.999]}},
    }
    with pytest.raises(SettingError) as caught:
        filled(config, learning_rate=5e-5)
    told = str(caught.value)
    lines = [" ".join(line.split()) for line in told.splitlines()]
    assert "train_micro_batch_size_per_gpu | per_device_train_batch_size = 4 | 8" in lines
    assert any(line.startswith("train_batch_size | ") and line.endswith("2 processes = 24 | 999") for line in lines)
    assert "bf16.enabled | bf16 = false | true" in lines
    assert "optimizer.params.lr | learning_rate = 5e-05 | 0.001" in lines
    assert "optimizer.params.betas | [adam_beta1, adam_beta2] = [0.9, 0.999] | [0.8, 0.999]" in lines
    assert "gradient_clipping" not in told, "1 and 1.0 are alike"
    assert '"auto"' in told


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        ({"type": "WarmupDecayLR", "params": {"total_num_steps": 7}}, "steps of the run = 100"),
        ({"type": "WarmupLR", "params": {"warmup_num_steps": 7}}, "warmup_steps = 10"),
        ({"type": "OneCycle", "params": {"cycle_min_lr": "auto"}}, "scheduler.params.cycle_min_lr"),
    ],
)
def test_a_schedule_is_compared_once_the_steps_are_known(scheduler: Any, words: str) -> None:
    with pytest.raises(SettingError) as caught:
        completed({"scheduler": scheduler}, warmup_steps=10)
    assert words in str(caught.value)


def test_a_schedule_without_a_warmup_is_refused() -> None:
    scheduler = {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}
    with pytest.raises(SettingError, match="Set warmup_steps to 1 or more"):
        completed({"scheduler": scheduler}, warmup_steps=0)


def test_what_would_not_be_used_is_said() -> None:
    config = {"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupLR"}}
    settings = {"optim": "sgd", "lr_scheduler_type": "cosine"}
    said = list(configuration.remarks(config, arguments(config, **settings)))
    assert ["`optim=sgd`" in said[0], "`lr_scheduler_type=cosine`" in said[1], len(said)] == [True, True, 2]
    assert not list(configuration.remarks(config, arguments(config)))
    assert not list(configuration.remarks({}, arguments(config, **settings)))
    with pytest.raises(SettingError, match=r"its own scheduler, .* \(WarmupLR\)"):
        configuration.refuse_two(config, {"optimizer": None, "scheduler": object()})
    configuration.refuse_two({}, {"optimizer": object(), "scheduler": object()})


def test_buckets_of_a_model_that_does_not_say_how_wide_it_is_are_those_of_deepspeed() -> None:
    found = completed({"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}})
    assert found["zero_optimization"] == {"stage": 3}


@pytest.mark.parametrize(
    ("config", "hidden"),
    [
        (SimpleNamespace(hidden_size=8), 8),
        (SimpleNamespace(hidden_sizes=[4, 16, 8]), 16),
        (SimpleNamespace(d_model=6), 6),
        (SimpleNamespace(text_config=SimpleNamespace(hidden_size=5)), 5),
        (None, None),
    ],
)
def test_how_wide_a_model_is(config: Any, hidden: int | None) -> None:
    assert configuration.hidden_size(config) == hidden


def test_fp16_at_stage_0_is_refused() -> None:
    """DeepSpeed 0.19 scales the gradients down, and never the loss up."""
    with pytest.raises(SettingError, match=r"zero_optimization\.stage to 1"):
        filled({"fp16": {"enabled": "auto"}}, fp16=True)
    assert filled({"zero_optimization": {"stage": 1}}, fp16=True)["fp16"] == {"enabled": True}


def test_the_plan_says_the_stage() -> None:
    assert device(arguments({"zero_optimization": {"stage": 3}})) == "cpu (fp32), DeepSpeed ZeRO 3"
    assert device(arguments(None)) == "cpu (fp32)"


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 1}}))
    assert stage_of(filled(str(path))) == 1
    path.write_text('"text"')
    with pytest.raises(SettingError, match="a JSON object"):
        filled(str(path))
    with pytest.raises(SettingError, match=r"nowhere\.json"):
        filled(str(tmp_path / "nowhere.json"))


@pytest.mark.parametrize(
    ("config", "on_cpu", "needed"),
    [
        ({"zero_optimization": {"stage": 2}}, True, ["deepspeed_shm_comm"]),
        ({"zero_optimization": {"stage": 2}}, False, []),
        ({"optimizer": {"type": "AdamW", "params": {"torch_adam": True}}}, False, []),
        ({"optimizer": {"type": "AdamW"}}, False, ["fused_adam"]),
        (
            {"optimizer": {"type": "Adam"}, "zero_optimization": {"offload_optimizer": {"device": "nvme"}}},
            False,
            ["cpu_adam", "async_io"],
        ),
    ],
)
def test_which_operators_are_built(config: Any, on_cpu: bool, needed: list[str]) -> None:
    assert deepspeed_ops.operators(config, on_cpu) == needed


def lock(folder: Path, age: float) -> Path:
    path = folder / "py311_cpu" / "cpu_adam" / "lock"
    path.parent.mkdir(parents=True)
    path.touch()
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_a_build_that_was_broken_off_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    path = lock(tmp_path, age=3600)
    with pytest.raises(SettingError) as caught:
        deepspeed_ops.check_builds(["cpu_adam"])
    assert str(path) in str(caught.value) and f"rm -r {path.parent}" in str(caught.value)
    deepspeed_ops.check_builds([])


def test_a_build_that_is_under_way_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    path = lock(tmp_path, age=1)
    with caplog.at_level(logging.WARNING, "burnish"):
        deepspeed_ops.check_builds(["cpu_adam"])
    assert "compiles its operator cpu_adam" in caplog.text
    os.utime(path, (0, 0))
    monkeypatch.chdir(path.parent)  # as a compiler works there
    deepspeed_ops.check_builds(["cpu_adam"])


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a folder of that name lies beside a script."""
    find = importlib.util.find_spec
    nowhere = importlib.machinery.ModuleSpec("deepspeed", None, is_package=True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: nowhere if name == "deepspeed" else find(name))
    with pytest.raises(SettingError, match=r"pip install 'burnish\[deepspeed\]'"):
        engine_for(arguments({"zero_optimization": {"stage": 2}}))


@pytest.mark.parametrize("setting", [{"torch_compile": True}, {"optim_in_backward": True, "max_grad_norm": 0.0}])
def test_what_changes_a_step_otherwise_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=f"`deepspeed` and `{next(iter(setting))}=True`"):
        engine_for(arguments({"zero_optimization": {"stage": 2}}, **setting))


def test_a_state_that_another_kind_of_optimizer_has_left_is_refused(tmp_path: Path) -> None:
    """Before anything is written in DeepSpeed's form."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    with pytest.raises(CheckpointError, match="momentum_buffer"):
        deepspeed_universal.write_universal(tmp_path, optimizer.state_dict(), model, optimizer)
    assert deepspeed_universal.read_topology(tmp_path) is None
