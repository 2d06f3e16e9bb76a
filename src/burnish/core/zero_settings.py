"""The configuration of DeepSpeed as it is given: read, and refused where it is malformed or asks for what burnish does
not drive. Without the package, which ignores a name at the top that it does not know."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from .errors import SettingError
from .json_settings import json_object

STAGES = range(4)
"""Of ZeRO (Rajbhandari et al., 2020, arXiv 1910.02054): the processes divide nothing, optimizer states, gradients too,
weights too."""

SECTIONS = (
    *("zero_optimization", "zero_optimization.offload_optimizer", "zero_optimization.offload_param"),
    *("optimizer", "optimizer.params", "scheduler", "scheduler.params", "fp16", "bf16"),
)
"""What holds settings of its own, as far as burnish reads it."""

KNOWN = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"),
    *("optimizer", "scheduler", "zero_optimization", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer"),
    *("fp16", "bf16", "bfloat16", "amp", "torch_autocast", "data_types", "communication_data_type"),
    *("seq_parallel_communication_data_type", "prescale_gradients", "gradient_predivide_factor", "sparse_gradients"),
    *("gradient_allreduce_op", "managed_gradient_accumulation", "disable_allgather", "disable_python_gc"),
    *("activation_checkpointing", "aio", "checkpoint", "datastates_ckpt", "nebula", "compile", "timers"),
    *("tensor_parallel", "sequence_parallel_size", "expert_parallel", "pipeline", "hybrid_engine", "elasticity"),
    *("curriculum_learning", "data_efficiency", "dataloader_drop_last", "use_data_before_expert_parallelism"),
    *("autotuning", "compression_training", "weight_quantization", "progressive_layer_drop", "eigenvalue"),
    *("tensorboard", "wandb", "csv_monitor", "comet", "comms_logger", "flops_profiler", "vocabulary_size"),
    *("steps_per_print", "wall_clock_breakdown", "memory_breakdown", "dump_state", "log_level"),
)
"""Names at the top of a configuration."""

OTHER_EXAMPLES = "it would change which examples a step holds, or how a model is cut"
IN_THE_BACKGROUND = "a checkpoint would be sealed before its files are complete"
OTHER_NUMBERS = "steps would not be those of one process"

REFUSED = {
    "tensor_parallel.autotp_size": ("tensor parallelism", OTHER_EXAMPLES),
    "sequence_parallel_size": ("sequence parallelism", OTHER_EXAMPLES),
    "expert_parallel.enabled": ("expert parallelism", OTHER_EXAMPLES),
    "elasticity.enabled": ("elastic batch sizes", OTHER_EXAMPLES),
    "curriculum_learning.enabled": ("curricula of DeepSpeed", OTHER_EXAMPLES),
    "data_efficiency.enabled": ("the data sampling of DeepSpeed", OTHER_EXAMPLES),
    "autotuning.enabled": ("the autotuning of DeepSpeed", OTHER_EXAMPLES),
    "checkpoint.writer.decoupled": ("writing behind the training", IN_THE_BACKGROUND),
    "datastates_ckpt.enabled": ("writing behind the training", IN_THE_BACKGROUND),
    "nebula.enabled": ("writing behind the training", IN_THE_BACKGROUND),
    "checkpoint.load_universal": ("reading the universal form", "burnish converts a state by itself where it has to"),
    "torch_autocast.enabled": ("autocast of DeepSpeed", f"{OTHER_NUMBERS}; bf16 and fp16 say the precision"),
    "amp.enabled": ("mixed precision of apex", f"{OTHER_NUMBERS}; bf16 and fp16 say the precision"),
    "zero_optimization.zenflow": ("updates behind the training", OTHER_NUMBERS),
}
"""What does not go together with burnish's steps and checkpoints: what it is, and why."""

ONLY = {
    "gradient_allreduce_op": ("mean", "gradients would be as many times too large as there are processes"),
    "managed_gradient_accumulation": (True, "burnish says which micro-batch is the last one"),
}
"""What may have one value alone, and why."""

NEAR = 0.8
"""How alike a name is to the one that was meant: of 1, as difflib measures it."""


def read(given: Any) -> dict[str, Any]:
    """A copy of the configuration that `deepspeed` gives, without what is null at its top.

    Raises:
        SettingError: it cannot be read or is malformed, a name is a slip, or it asks for what burnish does not drive.
    """
    config = {name: value for name, value in json_object("deepspeed", given).items() if value is not None}
    _refuse_slips(config)
    if "bfloat16" in config:  # the old name; DeepSpeed heeds the new one where both are there
        config.setdefault("bf16", config.pop("bfloat16"))
    _refuse_malformed(config)
    _refuse_undriven(config)
    return config


def stage_of(config: Mapping[str, Any]) -> int:
    """The stage of ZeRO; 0 where nothing is said."""
    return int(config.get("zero_optimization", {}).get("stage", 0))


def value_at(config: Mapping[str, Any], path: str) -> Any:
    """What lies at a path such as ``optimizer.params.lr``; None where nothing does."""
    value: Any = config
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _refuse_slips(config: Mapping[str, Any]) -> None:
    for name in config:
        near = difflib.get_close_matches(name, KNOWN, n=1, cutoff=NEAR)
        if name not in KNOWN and near:
            raise SettingError(
                f"deepspeed: there is no setting {name!r}, which DeepSpeed would leave out without a word. Did you "
                f"mean {near[0]!r}?"
            )


def _refuse_malformed(config: Mapping[str, Any]) -> None:
    for path in (*SECTIONS, *(path.rpartition(".")[0] for path in REFUSED if "." in path)):
        value = value_at(config, path)
        if value is not None and not isinstance(value, Mapping):
            raise SettingError(f"deepspeed: {path} is {json.dumps(value)}; an object with settings was expected.")
    for section in ("optimizer", "scheduler"):
        kind = value_at(config, f"{section}.type")
        if section in config and not isinstance(kind, str):
            raise SettingError(f"deepspeed: {section}.type is {json.dumps(kind)}; a name was expected.")
    stage = config.get("zero_optimization", {}).get("stage", 0)
    if type(stage) is not int or stage not in STAGES:
        raise SettingError(f"deepspeed: zero_optimization.stage is {stage!r}; ZeRO has the stages 0, 1, 2 and 3.")


def _refuse_undriven(config: Mapping[str, Any]) -> None:
    for path, (words, why) in REFUSED.items():
        value = value_at(config, path)
        is_off = value in (None, False, 0) or (value == 1 and path.endswith("_size"))
        if not is_off:
            raise SettingError(
                f"deepspeed: {path} is {json.dumps(value)}, and {words} cannot be combined with burnish: {why}. Leave "
                "it out."
            )
    for path, (usual, why) in ONLY.items():
        value = value_at(config, path)
        if value is not None and value != usual:
            raise SettingError(
                f"deepspeed: {path} is {json.dumps(value)}: {why}. Leave it out, or set it to {json.dumps(usual)}."
            )
