"""Fields that do nothing in this release, each with a sentence that is said when one is set. A field that comes alive
is taken out of its table here, and nothing else changes."""

from __future__ import annotations

import dataclasses
import logging
import os
from typing import Any

logger = logging.getLogger(__name__)

NO_EFFECT = {
    "accelerator_config": "burnish makes the batches itself; of these settings `dispatch_batches` alone has one",
    "average_tokens_across_devices": "a loss is always divided by the targets of all processes",
    "dataloader_in_order": "steps are always taken in the order of the plan, so that a run can be repeated",
    "debug": "a loss or gradient that is not finite is always found and named; see `nonfinite_policy`",
    "enable_jit_checkpoint": "a run that is told to terminate always saves a checkpoint first",
    "eval_use_gather_object": "predictions of all kinds are gathered over processes",
    "ignore_data_skip": "resuming never reads data that were trained on, so there is nothing to skip",
    "liger_kernel_config": "layers are not replaced by liger-kernel in this release",
    "local_rank": "the number of a process on its machine is read from the environment variable LOCAL_RANK",
    "logging_nan_inf_filter": "a loss that is not finite is never hidden; see `nonfinite_policy`",
    "optim_target_modules": "no optimizer of this release projects gradients",
    "parallelism_config": "each process has a whole model in this release",
    "restore_callback_states_from_checkpoint": "callbacks that are saved with a checkpoint always get their state back",
    "save_on_each_node": "the first process of a run writes its files, once; all processes read them from there",
    "skip_memory_metrics": "peak memory is not added to the metrics in this release",
    "sortish_sampler": "the examples of a step are always sorted by length, which costs no randomness",
    "use_liger_kernel": "layers are not replaced by liger-kernel in this release",
}
"""Field to the reason. Said as a warning: the run computes what it would compute anyway."""

VALUE_WITHOUT_EFFECT = {
    ("train_sampling_strategy", "batch_rebalance"): "the work of a step is always shared out by length",
}
"""(field, value) to the reason."""


def fields_without_effect(args: Any) -> list[str]:
    """Names of fields that are set away from their default and do nothing."""
    return [f.name for f in dataclasses.fields(args) if _reason(f.name, getattr(args, f.name), f) is not None]


def warn_about_fields_without_effect(args: Any, names: tuple[str, ...] | None = None) -> None:
    """Says of each field (or of those named) that is set and does nothing why, and what happens instead."""
    for declared in dataclasses.fields(args):
        name, value = declared.name, getattr(args, declared.name)
        if names is not None and name not in names:
            continue
        reason = _reason(name, value, declared)
        if reason is not None:
            logger.warning("`%s=%r` has no effect: %s.", name, getattr(value, "value", value), reason)


def _reason(name: str, value: Any, declared: dataclasses.Field[Any]) -> str | None:
    if (name, value if isinstance(value, str) else None) in VALUE_WITHOUT_EFFECT:
        return VALUE_WITHOUT_EFFECT[name, value]
    if name not in NO_EFFECT or value == declared.default or (not value and not declared.default):
        return None
    if name == "accelerator_config" and isinstance(value, dict) and value.keys() <= {"dispatch_batches"}:
        return None
    if name == "local_rank" and str(value) == os.environ.get("LOCAL_RANK"):
        return None  # as launched
    return NO_EFFECT[name]
