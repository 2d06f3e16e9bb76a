"""What `fsdp` and `fsdp_config` ask for, and what of it belongs to other releases of FSDP."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from burnish.core.errors import SettingError

TYPES = {
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "fp16": torch.float16,
    "float16": torch.float16,
    "fp32": torch.float32,
    "float32": torch.float32,
    "no": torch.float32,
}

KNOWN = (
    *("reshard_after_forward", "cpu_offload", "offload_params", "mixed_precision_policy", "mixed_precision"),
    *("auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params", "state_dict_type"),
    *("activation_checkpointing", "cpu_ram_efficient_loading", "sync_each_batch", "dp_shard_size"),
)
"""Settings that have an effect, or ask for what is always so."""

NO_EFFECT = {
    "version": "FSDP2 is what burnish drives, and its checkpoints fit those of every engine",
    "sync_module_states": "all processes always get the weights of the first one",
    "use_orig_params": "FSDP2 keeps every parameter by itself",
    "backward_prefetch": "FSDP2 gathers the weights of the next block ahead by itself",
    "forward_prefetch": "FSDP2 gathers the weights of the next block ahead by itself",
    "limit_all_gathers": "FSDP2 bounds the memory of weights that are gathered ahead by itself",
    "sharding_strategy": "`fsdp` says what is divided",
}
"""Settings of FSDP 1 with a value that changes nothing here, and why."""
USUAL = {"version": (2, "2"), "sync_module_states": (True, "true"), "use_orig_params": (True, "true")}
"""Values that need no word."""

REFUSED = {
    "xla": "TPUs are not supported",
    "xla_fsdp_v2": "TPUs are not supported",
    "xla_fsdp_settings": "TPUs are not supported",
    "xla_fsdp_grad_ckpt": "TPUs are not supported",
    "ignored_modules": "every weight is divided; what is not to be trained can be frozen (requires_grad_(False))",
}

LOADING = "FSDP_CPU_RAM_EFFICIENT_LOADING"
"""By this variable transformers loads weights on the first process only."""

BY_BLOCKS, BY_SIZE, ROOT_ONLY = "TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"
FULL, SHARDED = "FULL_STATE_DICT", "SHARDED_STATE_DICT"
CHECKPOINTS = {"FULL": FULL, "SHARDED": SHARDED, FULL: FULL, SHARDED: SHARDED}


@dataclass(frozen=True)
class Sharding:
    """How a model is divided among processes."""

    reshard_after_forward: bool | int = True
    """Whether the weights of a block are given back after its forward pass, and gathered again for the backward pass;
    a number: kept divided among so many processes in between."""
    is_hybrid: bool = False
    """Whether the weights are divided within a machine, and machines hold the same."""
    shard_size: int | None = None
    """Processes among which the weights are divided; None for all, or with `is_hybrid` for those of a machine."""
    offload: bool = False
    """Whether parts lie in the host's memory."""
    wrapping: str = BY_BLOCKS
    block_classes: tuple[str, ...] = ()
    """Names of the classes of blocks; empty for those that the model names itself."""
    min_num_params: int = 0
    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    output_dtype: torch.dtype | None = None
    cast_forward_inputs: bool = False
    """Off where the run computes in mixed precision: under autocast, which leaves labels and positions as they are."""
    syncs_each_batch: bool = False
    """Whether gradients are summed and divided after each micro-batch: otherwise after the last one of a step, up to
    which each process holds a whole gradient."""
    writes_parts: bool = False
    """Whether each process writes its part of a checkpoint."""
    remarks: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """What is to be said of settings that change nothing."""

    @classmethod
    def of(cls, args: Any) -> Sharding:
        """What the arguments ask for.

        Raises:
            SettingError: for a setting that is not known, not here, or contradicts another.
        """
        config = {name: value for name, value in (args.fsdp_config or {}).items() if value is not None}
        _check_names(config)
        strategy, *others = args.fsdp.split()
        is_hybrid = strategy.startswith("hybrid")
        offload = "offload" in others or _flag(config, "cpu_offload") or _flag(config, "offload_params")
        return cls(
            reshard_after_forward=_reshards(strategy, config),
            is_hybrid=is_hybrid,
            shard_size=_shard_size(config, is_hybrid),
            offload=offload,
            syncs_each_batch=_flag(config, "sync_each_batch", otherwise=offload),
            writes_parts=_checkpoints(config) == SHARDED,
            remarks=_remarks(config),
            **_wrapping(config),
            **_precision(config, args.mixed_precision),
        )


def _check_names(config: Mapping[str, Any]) -> None:
    for name, value in config.items():
        if name in REFUSED and value not in (False, "false", "", "None", "none", {}):
            raise SettingError(f"fsdp_config: {name!r} = {value!r}: {REFUSED[name]}. Leave it out.")
        if name not in (*KNOWN, *NO_EFFECT, *REFUSED):
            near = difflib.get_close_matches(name, KNOWN, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise SettingError(f"fsdp_config has no setting {name!r}.{hint} There is: {', '.join(KNOWN)}.")


def _remarks(config: Mapping[str, Any]) -> tuple[str, ...]:
    """A sentence for each setting that changes nothing."""
    found = [
        f"`fsdp_config`: {name!r} = {value!r} has no effect: {NO_EFFECT[name]}."
        for name, value in config.items()
        if name in NO_EFFECT and value not in USUAL.get(name, ())
    ]
    if _flag(config, "cpu_ram_efficient_loading") and not os.environ.get(LOADING):
        found.append(
            "`fsdp_config`: 'cpu_ram_efficient_loading' has no effect: the model is loaded already. accelerate launch "
            "tells transformers in time; or build the model under torch.device('meta') on all processes but the first, "
            "whose weights all of them get."
        )
    return tuple(found)


def _flag(config: Mapping[str, Any], name: str, otherwise: bool = False) -> bool:
    value = config.get(name, otherwise)
    word = {"true": True, "false": False}.get(str(value).lower())
    if word is None:
        raise SettingError(f"fsdp_config: {name!r} = {value!r}; it is true or false.")
    return word


def _reshards(strategy: str, config: Mapping[str, Any]) -> bool | int:
    of_strategy = strategy in ("full_shard", "hybrid_shard")
    value = config.get("reshard_after_forward", of_strategy)
    by_name = {"FULL_SHARD": True, "HYBRID_SHARD": True, "SHARD_GRAD_OP": False, "HYBRID_SHARD_ZERO2": False}
    if isinstance(value, str):
        value = by_name.get(value.upper(), {"true": True, "false": False}.get(value.lower(), value))
    if not isinstance(value, int):
        raise SettingError(f"fsdp_config: 'reshard_after_forward' = {value!r}; it is true, false or a number.")
    if value is True and not of_strategy:
        raise SettingError(
            f"fsdp={strategy!r} keeps the weights whole after the forward pass, and fsdp_config says "
            "'reshard_after_forward': true. Change one of the two (full_shard gives them back)."
        )
    return value


def _shard_size(config: Mapping[str, Any], is_hybrid: bool) -> int | None:
    size = config.get("dp_shard_size")
    if size is None:
        return None
    if not is_hybrid or not isinstance(size, int) or size < 1:
        raise SettingError(
            f"fsdp_config: 'dp_shard_size' = {size!r}: the number of processes that divide a model among them, for "
            "fsdp='hybrid_shard'."
        )
    return size


def _checkpoints(config: Mapping[str, Any]) -> str:
    given = str(config.get("state_dict_type", FULL)).upper()
    if given not in CHECKPOINTS:
        raise SettingError(
            f"fsdp_config: 'state_dict_type' = {given!r}. There is {FULL} (the first process writes everything, as in "
            f"any other run) and {SHARDED} (each process writes its part)."
        )
    return CHECKPOINTS[given]


def _wrapping(config: Mapping[str, Any]) -> dict[str, Any]:
    given = config.get("transformer_layer_cls_to_wrap") or ()
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, (list, tuple, set)) or not all(isinstance(name, str) for name in names):
        raise SettingError(f"fsdp_config: 'transformer_layer_cls_to_wrap' = {given!r}; it is the names of classes.")
    classes = tuple(name.strip() for name in names if name.strip())
    least = _number(config, "min_num_params")
    policy = str(config.get("auto_wrap_policy", BY_SIZE if least else BY_BLOCKS)).upper()
    if policy not in (BY_BLOCKS, BY_SIZE, ROOT_ONLY):
        raise SettingError(
            f"fsdp_config: 'auto_wrap_policy' = {policy!r}. There is {BY_BLOCKS}, {BY_SIZE} and {ROOT_ONLY}."
        )
    if classes and policy != BY_BLOCKS:
        raise SettingError(
            f"fsdp_config: 'transformer_layer_cls_to_wrap' names blocks, and {_said(config)} goes by something else. "
            "Leave one of the two out."
        )
    if (policy == BY_SIZE) != (least > 0):
        raise SettingError(f"fsdp_config: {BY_SIZE} goes with 'min_num_params' above 0, and that with it.")
    return {"wrapping": policy, "block_classes": classes, "min_num_params": least}


def _number(config: Mapping[str, Any], name: str) -> int:
    given = config.get(name) or 0
    try:
        return int(float(given))
    except (TypeError, ValueError) as error:
        raise SettingError(f"fsdp_config: {name!r} = {given!r}; it is a number.") from error


def _said(config: Mapping[str, Any]) -> str:
    name = "auto_wrap_policy" if "auto_wrap_policy" in config else "min_num_params"
    return f"{name!r} = {config[name]!r}"


def _precision(config: Mapping[str, Any], of_run: str) -> dict[str, Any]:
    """The types of weights while they are computed with, and of gradients while they are summed: by default float32
    for the latter, whatever the run computes in."""
    given = config.get("mixed_precision_policy", config.get("mixed_precision"))
    usual: dict[str, Any] = {"param_dtype": TYPES[of_run], "reduce_dtype": torch.float32} if of_run != "no" else {}
    if given is None:
        return usual
    by_itself = of_run == "no"  # no autocast then, which would make inputs fit the weights
    if not isinstance(given, Mapping):
        return {"param_dtype": _type(given), "reduce_dtype": torch.float32, "cast_forward_inputs": by_itself}
    known = ("param_dtype", "reduce_dtype", "output_dtype")
    unknown = [name for name in given if name not in (*known, "cast_forward_inputs")]
    if unknown:
        raise SettingError(f"fsdp_config: the mixed precision has {', '.join(known)}, and no {unknown[0]!r}.")
    found = {name: _type(given[name]) for name in known if given.get(name) is not None}
    return {**usual, **found, "cast_forward_inputs": bool(given.get("cast_forward_inputs", by_itself))}


def _type(given: Any) -> torch.dtype:
    found = given if isinstance(given, torch.dtype) else TYPES.get(str(given).removeprefix("torch.").lower())
    if found is None:
        raise SettingError(f"fsdp_config: there is no type {given!r}; there is {', '.join(TYPES)}.")
    return found
