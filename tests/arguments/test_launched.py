"""What `accelerate launch` was told becomes settings, or is refused where settings say something else."""

from __future__ import annotations

from typing import Any

import pytest

from burnish import TrainingArguments
from burnish.arguments.launched import deepspeed_config
from burnish.core.errors import SettingError


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets variables of the environment as accelerate names them, beside the one that is always there."""

    def tell(**variables: str) -> None:
        for name, value in {"MIXED_PRECISION": "no", **variables}.items():
            prefix = "" if name.startswith("FSDP_") else "ACCELERATE_"
            monkeypatch.setenv(f"{prefix}{name}", value)

    return tell


def made(tmp_path: Any, **settings: Any) -> TrainingArguments:
    return TrainingArguments(str(tmp_path), **settings)


def test_nothing_is_followed_without_the_launcher(tmp_path, monkeypatch):
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "INDUCTOR")
    assert not made(tmp_path).torch_compile


def test_precision_and_device(tmp_path, told):
    told(MIXED_PRECISION="bf16", USE_CPU="True")
    args = made(tmp_path)
    assert (args.bf16, args.fp16, args.use_cpu) == (True, False, True)
    with pytest.raises(SettingError, match=r"mixed_precision: bf16, and the settings say fp16=True"):
        made(tmp_path, fp16=True)


def test_no_precision_leaves_that_of_the_script(tmp_path, told):
    told()
    assert made(tmp_path, bf16=True).bf16


def test_a_precision_that_is_not_there(tmp_path, told):
    told(MIXED_PRECISION="fp8")
    with pytest.raises(SettingError, match=r"fp8; burnish computes in no, fp16, bf16"):
        made(tmp_path)


def test_compilation(tmp_path, told):
    told(DYNAMO_BACKEND="AOT_EAGER", DYNAMO_MODE="default")
    args = made(tmp_path)
    assert (args.torch_compile, args.torch_compile_backend, args.torch_compile_mode) == (True, "aot_eager", None)
    with pytest.raises(
        SettingError, match=r"torch_compile_backend: aot_eager, and .* torch_compile_backend='inductor'"
    ):
        made(tmp_path, torch_compile_backend="inductor")


@pytest.mark.parametrize(
    ("variable", "called"),
    [
        ("USE_MEGATRON_LM", "Megatron-LM"),
        ("USE_PARALLELISM_CONFIG", "parallelism_config"),
        ("DYNAMO_USE_REGIONAL_COMPILATION", "dynamo_use_regional_compilation"),
    ],
)
def test_what_is_not_there_is_refused(variable, called, tmp_path, told):
    told(**{variable: "true"})
    with pytest.raises(SettingError, match=called):
        made(tmp_path)


def test_accumulation(tmp_path, told):
    told(GRADIENT_ACCUMULATION_STEPS="4")
    assert made(tmp_path).gradient_accumulation_steps == 4
    assert made(tmp_path, gradient_accumulation_steps=4).gradient_accumulation_steps == 4
    with pytest.raises(SettingError, match=r"gradient_accumulation_steps: 4, and .*gradient_accumulation_steps=2"):
        made(tmp_path, gradient_accumulation_steps=2)


def test_fsdp(tmp_path, told):
    told(USE_FSDP="true", FSDP_VERSION="2", FSDP_MIN_NUM_PARAMS="100000000", FSDP_RESHARD_AFTER_FORWARD="false",
         FSDP_TRANSFORMER_CLS_TO_WRAP="BertLayer")  # fmt: skip
    args = made(tmp_path)
    assert args.fsdp
    assert args.fsdp_config == {
        "version": 2,
        "reshard_after_forward": False,
        "transformer_layer_cls_to_wrap": "BertLayer",
    }
    with pytest.raises(SettingError, match=r"use_fsdp: true, and the settings say deepspeed="):
        made(tmp_path, deepspeed={"zero_optimization": {"stage": 1}})


def test_deepspeed_as_the_questions_were_answered(told):
    told(DEEPSPEED_ZERO_STAGE="3", DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE="cpu", DEEPSPEED_OFFLOAD_PARAM_DEVICE="none",
         DEEPSPEED_ZERO3_SAVE_16BIT_MODEL="true", GRADIENT_CLIPPING="0.5")  # fmt: skip
    found = deepspeed_config()
    assert found["zero_optimization"] == {
        "stage": 3, "offload_optimizer": {"device": "cpu"}, "stage3_gather_16bit_weights_on_model_save": True
    }  # fmt: skip
    assert (found["gradient_clipping"], found["train_batch_size"]) == (0.5, "auto")


@pytest.mark.parametrize(("told_stage", "stage"), [({}, 2), ({"DEEPSPEED_ZERO_STAGE": "0"}, 0)])
def test_deepspeed_divides_as_it_was_told(told, told_stage, stage):
    told(**told_stage)
    assert deepspeed_config()["zero_optimization"]["stage"] == stage


def test_deepspeed_by_a_file(tmp_path, told):
    told(USE_DEEPSPEED="true", DEEPSPEED_CONFIG_FILE=str(tmp_path / "ds.json"))
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 1}}')
    assert made(tmp_path).deepspeed == str(tmp_path / "ds.json")
