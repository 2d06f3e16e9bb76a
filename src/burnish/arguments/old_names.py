"""Names of earlier releases, from transformers 4.30 on, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from burnish.core.errors import SettingError

from .told import warn

Settings = dict[str, Any]


@dataclass(frozen=True)
class OldName:
    """What became of a name.

    Args:
        then: closing part of the warning, "use `x`" or "no longer does anything: why".
        new: the field that took its place, if there is one.
        values: (value, the other settings) to the settings that mean the same today. By default `new` takes the
            value as it is.
        builds: whether `values` builds on what `new` is given, so that giving both is no contradiction.
    """

    then: str
    new: str | None = None
    values: Callable[[Any, Mapping[str, Any]], Settings] | None = None
    builds: bool = False

    def settings(self, value: Any, others: Mapping[str, Any]) -> Settings:
        """What the old setting means today, given the other settings. None asked for nothing, and asks for nothing."""
        if value is None:
            return {}
        if self.values is not None:
            return self.values(value, others)
        return {self.new: value} if self.new is not None else {}


def renamed(new: str) -> OldName:
    """A field that only has another name today."""
    return OldName(f"use `{new}`", new)


def gone(why: str) -> OldName:
    """A field without a successor."""
    return OldName(f"it no longer does anything; {why.rstrip('.')}")


def switch(use: str, new: str, value: Any) -> OldName:
    """A boolean that is one value of another field today."""
    return OldName(f"use `{use}`", new, lambda given, others: {new: value} if _is_on(given) else {})


def _is_on(given: Any) -> bool:
    return str(given).strip().lower() in ("true", "1", "yes", "on", "y", "t")


def _warmup(ratio: Any, others: Mapping[str, Any]) -> Settings:
    try:
        share = float(ratio)
    except (TypeError, ValueError):
        share = -1.0
    if not 0 <= share < 1:
        raise SettingError(f"`warmup_ratio` = {ratio!r}: expected a share of the run, from 0 to below 1.")
    # As ever, a number of steps goes before a share.
    return {} if share == 0 or others.get("warmup_steps") else {"warmup_steps": share}


def _metric_inputs(given: Any, others: Mapping[str, Any]) -> Settings:
    asked = list(others.get("include_for_metrics") or [])
    return {"include_for_metrics": [*asked, *({"inputs"} - set(asked))]} if _is_on(given) else {}


def _hub_name(name: Any, others: Mapping[str, Any]) -> Settings:
    owner = others.get("push_to_hub_organization")
    return {"hub_model_id": f"{owner}/{name}" if owner else name}


def _fsdp_entry(entry: str) -> OldName:
    def values(value: Any, others: Mapping[str, Any]) -> Settings:
        given = others.get("fsdp_config")
        return {"fsdp_config": {**(given if isinstance(given, dict) else {}), entry: value}} if value else {}

    return OldName(f'use `fsdp_config={{"{entry}": ...}}`', "fsdp_config", values, builds=True)


_AMP = "mixed precision is torch's own; `fp16` and `bf16` switch it on."
_BATCHES = "every process makes its own share of a step."

OLD_NAMES: dict[str, OldName] = {
    "adafactor": switch('optim="adafactor"', "optim", "adafactor"),
    "dispatch_batches": gone(_BATCHES),
    "evaluation_strategy": renamed("eval_strategy"),
    "fp16_backend": gone(_AMP),
    "fp16_opt_level": gone(_AMP),
    "fsdp_min_num_params": _fsdp_entry("min_num_params"),
    "fsdp_transformer_layer_cls_to_wrap": _fsdp_entry("transformer_layer_cls_to_wrap"),
    "group_by_length": switch(
        'train_sampling_strategy="group_by_length"', "train_sampling_strategy", "group_by_length"
    ),
    "half_precision_backend": gone(_AMP),
    "include_inputs_for_metrics": OldName(
        'use `include_for_metrics=["inputs"]`', "include_for_metrics", _metric_inputs, builds=True
    ),
    "include_tokens_per_second": gone("tokens per second are always reported."),
    "jit_mode_eval": gone("`torch_compile=True` compiles the model."),
    "logging_dir": gone("trackers choose their folder; for TensorBoard set the variable TENSORBOARD_LOGGING_DIR."),
    "mp_parameters": gone("it belonged to a launcher that is no longer supported."),
    "no_cuda": switch("use_cpu=True", "use_cpu", True),
    "overwrite_output_dir": gone(
        "the trainer never empties a folder. Choose another `output_dir`, or pass `resume_from_checkpoint` to train() "
        "to go on with the run that is there."
    ),
    "past_index": gone("hidden states are not carried from one batch to the next."),
    "per_gpu_eval_batch_size": renamed("per_device_eval_batch_size"),
    "per_gpu_train_batch_size": renamed("per_device_train_batch_size"),
    "push_to_hub_model_id": OldName("use `hub_model_id`", "hub_model_id", _hub_name),
    "push_to_hub_organization": OldName('use `hub_model_id="owner/name"`', "hub_model_id", lambda owner, others: {}),
    "push_to_hub_token": renamed("hub_token"),
    "ray_scope": gone("there is no search by Ray."),
    "save_safetensors": gone("checkpoints are always safetensors, which hold no code."),
    "sharded_ddp": gone("fairscale is no longer supported; `fsdp` shards a model."),
    "split_batches": gone(_BATCHES),
    "torchdynamo": renamed("torch_compile_backend"),
    "tp_size": gone("tensor parallelism is set where the model is loaded."),
    "tpu_metrics_debug": gone("TPUs are not supported."),
    "tpu_num_cores": gone("TPUs are not supported."),
    "use_ipex": gone("torch itself has the optimisations for Intel's processors."),
    "use_legacy_prediction_loop": gone("there is one evaluation loop."),
    "use_mps_device": gone("an Apple GPU is used where there is one; `use_cpu=True` keeps to the CPU."),
    "warmup_ratio": OldName(
        "use `warmup_steps`, where a number below 1 is a share of the run", "warmup_steps", _warmup, builds=True
    ),
    "xpu_backend": renamed("ddp_backend"),
}

SHORT_NAMES = {"lr": "learning_rate"}
"""Names that are taken for another, today as ever, with a warning."""

OLD_VALUES = {
    ("optim", "adamw_hf"): "adamw_torch",
    ("optim", "adamw_apex_fused"): "adamw_torch_fused",
}
"""(field, value that is gone) to the value that means the same."""


def translate(settings: Mapping[str, Any], keep: Collection[str] = ()) -> Settings:
    """The same settings under today's names, with one warning for each old or short name.

    Args:
        settings: values by name, such as keyword arguments, flags or the content of a file.
        keep: names that are not old here, such as fields that a subclass declares.

    Raises:
        SettingError: when an old name and the new one are both given and differ.
    """
    current = dict(settings)
    for name, value in settings.items():
        if name in keep or not is_old(name):
            continue
        del current[name]
        for new, meant in renewed(name, value, {**settings, **current}).items():
            if new in settings and not _agree(name, settings[new], meant):
                raise SettingError(
                    f"`{name}` = {value!r} and `{new}` = {settings[new]!r} are one setting. Give `{new}` only."
                )
            current[new] = meant
    return current


def is_old(name: str) -> bool:
    """Whether a name stands for another setting, or for nothing any more."""
    return name in OLD_NAMES or name in SHORT_NAMES


def renewed(name: str, value: Any, others: Mapping[str, Any]) -> Settings:
    """What one old or short name means today, given the other settings; warns once."""
    if name in SHORT_NAMES:
        warn(f"`{name}` is taken as `{SHORT_NAMES[name]}`.")
        return {SHORT_NAMES[name]: value}
    old = OLD_NAMES[name]
    warn(f"`{name}` is of an earlier release: {old.then}.", FutureWarning)
    return old.settings(value, others)


def _agree(name: str, given: Any, meant: Any) -> bool:
    return (name in OLD_NAMES and OLD_NAMES[name].builds) or given is None or str(given) == str(meant)


def current_value(name: str, value: Any) -> Any:
    """The value that means the same today, with a warning if it has changed."""
    new = OLD_VALUES.get((name, value)) if isinstance(value, str) else None
    if new is None:
        return value
    warn(f"`{name}={value!r}` is the value of an earlier release: use {new!r}.", FutureWarning)
    return new
