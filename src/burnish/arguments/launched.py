"""Settings that `accelerate launch` hands to a process in its environment, as those of `accelerate config`."""

from __future__ import annotations

import os
from typing import Any

from burnish.core.errors import SettingError

from .fields.every import EveryField

LAUNCHED = "ACCELERATE_MIXED_PRECISION"
"""In the environment of every process that it starts."""

PRECISIONS = {"no": (), "fp16": ("fp16",), "bf16": ("bf16",)}

FSDP_SETTINGS = {
    "FSDP_VERSION": "version",
    "FSDP_RESHARD_AFTER_FORWARD": "reshard_after_forward",
    "FSDP_OFFLOAD_PARAMS": "cpu_offload",
    "FSDP_MIN_NUM_PARAMS": "min_num_params",
    "FSDP_AUTO_WRAP_POLICY": "auto_wrap_policy",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "transformer_layer_cls_to_wrap",
    "FSDP_STATE_DICT_TYPE": "state_dict_type",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "cpu_ram_efficient_loading",
    "FSDP_ACTIVATION_CHECKPOINTING": "activation_checkpointing",
    "FSDP_IGNORED_MODULES": "ignored_modules",
}
"""What is handed on of FSDP, and what `fsdp_config` calls it. What is left out belongs to FSDP 1."""

UNKNOWN = {
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism_config",
    "ACCELERATE_DYNAMO_USE_FULLGRAPH": "dynamo_use_fullgraph",
    "ACCELERATE_DYNAMO_USE_DYNAMIC": "dynamo_use_dynamic",
    "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "dynamo_use_regional_compilation",
}
"""What burnish has not, and what `accelerate config` calls it."""


def follow_launcher(args: EveryField) -> None:
    """Fills in what `accelerate launch` was told. Doing it twice changes nothing.

    Raises:
        SettingError: it was told something else than these settings, or something that burnish has not.
    """
    if LAUNCHED not in os.environ:
        return
    for name, called in UNKNOWN.items():
        if _is_true(name):
            raise SettingError(
                f"accelerate launch was told to use {called} ({name}=true), which burnish has not. Take it out of the "
                "configuration (accelerate config), or start the processes with torchrun."
            )
    if _is_true("ACCELERATE_USE_CPU"):
        args.use_cpu = True
    _follow_precision(args)
    _follow_compilation(args)
    _follow(args, "gradient_accumulation_steps", _number("ACCELERATE_GRADIENT_ACCUMULATION_STEPS"), unset=1)
    if _is_true("ACCELERATE_USE_FSDP"):
        _follow_fsdp(args)
    if _is_true("ACCELERATE_USE_DEEPSPEED"):
        _follow_deepspeed(args)


def _follow_precision(args: EveryField) -> None:
    told = os.environ[LAUNCHED].lower()
    if told not in PRECISIONS:
        raise SettingError(
            f"accelerate launch was told mixed_precision: {told}; burnish computes in {', '.join(PRECISIONS)}. Choose "
            "one of them in the configuration of accelerate."
        )
    for name in PRECISIONS[told]:
        other = "bf16" if name == "fp16" else "fp16"
        if getattr(args, other):
            raise SettingError(_contradiction("mixed_precision", told, other, True))
        setattr(args, name, True)


def _follow_compilation(args: EveryField) -> None:
    backend = os.environ.get("ACCELERATE_DYNAMO_BACKEND", "no").lower()
    if backend == "no":
        return
    mode = os.environ.get("ACCELERATE_DYNAMO_MODE", "default")
    _follow(args, "torch_compile_backend", backend, unset=None)
    if mode != "default":
        _follow(args, "torch_compile_mode", mode, unset=None)
    args.torch_compile = True


def _follow_fsdp(args: EveryField) -> None:
    if args.deepspeed:
        raise SettingError(_contradiction("use_fsdp", "true", "deepspeed", args.deepspeed))
    if not args.fsdp:
        args.fsdp = "full_shard"
    if args.fsdp_config is None:
        told = {setting: _value(os.environ[name]) for name, setting in FSDP_SETTINGS.items() if name in os.environ}
        if told.get("auto_wrap_policy") != "SIZE_BASED_WRAP":
            told.pop("min_num_params", None)  # accelerate tells one all the same
        args.fsdp_config = told


def _follow_deepspeed(args: EveryField) -> None:
    if args.fsdp:
        raise SettingError(_contradiction("use_deepspeed", "true", "fsdp", args.fsdp))
    if args.deepspeed:
        return
    path = os.environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none")
    args.deepspeed = path if path != "none" else deepspeed_config()


def deepspeed_config() -> dict[str, Any]:
    """The questions of `accelerate config` about DeepSpeed, as a configuration of DeepSpeed."""
    stage = _number("ACCELERATE_DEEPSPEED_ZERO_STAGE")
    zero: dict[str, Any] = {"stage": 2 if stage is None else stage}  # 0 divides nothing
    for part in ("optimizer", "param"):
        name = f"ACCELERATE_DEEPSPEED_OFFLOAD_{part.upper()}"
        device = os.environ.get(f"{name}_DEVICE", "none")
        if device != "none":
            path = os.environ.get(f"{name}_NVME_PATH", "none")
            zero[f"offload_{part}"] = {"device": device, **({"nvme_path": path} if path != "none" else {})}
    if _is_true("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL"):
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    clipping = os.environ.get("ACCELERATE_GRADIENT_CLIPPING", "auto")
    return {
        "zero_optimization": zero,
        "gradient_clipping": "auto" if clipping in ("auto", "none") else float(clipping),
        "gradient_accumulation_steps": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "train_batch_size": "auto",
    }


def _follow(args: EveryField, name: str, told: Any, unset: Any) -> None:
    """Sets a setting as told, where it is as nobody has set it."""
    now = getattr(args, name)
    if told is None or now == told:
        return
    if now != unset:
        raise SettingError(_contradiction(name, told, name, now))
    setattr(args, name, told)


def _contradiction(called: str, told: Any, name: str, now: Any) -> str:
    return (
        f"accelerate launch was told {called}: {told}, and the settings say {name}={now!r}. Change one of the two: "
        "accelerate config asks again, and its flags go before the script."
    )


def _is_true(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "on")


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else None


def _value(text: str) -> Any:
    """A word of the environment as what it means."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.isdigit() else text
