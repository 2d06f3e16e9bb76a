"""Whether two runs are the same run: their settings of effect, and their data files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from burnish.arguments.without_effect import NO_EFFECT
from burnish.checkpoint.run_manifest import RunManifest

from .fingerprints import DATA_FILES

OF_NO_EFFECT = (
    # the folder, what is done besides training, in how many processes, and how it is told
    *("output_dir", "overwrite_output_dir", "overwrite_cache", "resume_from_checkpoint", "do_train", "do_eval"),
    *("do_predict", "test_file", "max_predict_samples", "cache_dir", "load_best_model_at_end", "max_time"),
    *("run_name", "project", "disable_tqdm", "report_to", "measure_peak", "num_processes", "max_restarts"),
    # evaluation
    *("metrics", "max_eval_samples", "per_device_eval_batch_size", "prediction_loss_only", "predict_with_generate"),
    *("batch_eval_metrics", "metric_for_best_model", "greater_is_better", "bf16_full_eval", "fp16_full_eval"),
    # how rows are fetched
    *("preprocessing_num_workers", "dataloader_num_workers", "dataloader_pin_memory", "dataloader_prefetch_factor"),
    *("dataloader_persistent_workers", "dataloader_multiprocessing_context"),
    # how, where and in what memory the same step is computed
    *("pad_to_max_length", "token_budget", "trim_padding", "padding_free", "logits_at_targets", "use_cache"),
    *("auto_find_batch_size", "torch_empty_cache_steps", "optim_in_backward", "use_cpu", "hang_timeout"),
    *("activation_checkpointing", "activation_checkpointing_kwargs"),
    *("gradient_checkpointing", "gradient_checkpointing_kwargs"),
    *("torch_compile", "torch_compile_backend", "torch_compile_mode"),
    *("ddp_backend", "ddp_timeout", "ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_static_graph"),
)
"""Settings that may differ when a run goes on, like those that do nothing at all: they do not change how the weights
come about, but for the last bits where the same sums are added up in another order."""
OF_NO_EFFECT_BY_PREFIX = (
    *("logging_", "log_", "hub_", "push_to_hub", "trackio_", "save_", "keep_", "eval_", "include_", "generation_"),
)
LENGTH_OF_RUN = ("num_train_epochs", "max_steps")


@dataclass(frozen=True)
class Change:
    """A setting that another run in the folder had otherwise."""

    name: str
    was: str
    now: str


def differences(earlier: RunManifest, now: RunManifest) -> list[Change]:
    """Settings of effect in which two runs differ, and data files whose content does."""
    changes = [Change("task", str(earlier.task), str(now.task))] if earlier.task != now.task else []
    for name in sorted({*earlier.settings, *now.settings}):
        was, now_ = (_shown(run.settings.get(name, {}).get("value")) for run in (earlier, now))
        if was != now_ and _has_effect(name) and name not in DATA_FILES:
            changes.append(Change(name, was, now_))
    return changes + _changed_files(earlier, now)


def _has_effect(name: str) -> bool:
    return name not in {*OF_NO_EFFECT, *NO_EFFECT} and not name.startswith(OF_NO_EFFECT_BY_PREFIX)


def _changed_files(earlier: RunManifest, now: RunManifest) -> list[Change]:
    """A file that only moved is the same file."""
    changes = []
    for name in ("train_file", "validation_file"):
        was, now_ = (run.data.get(name, {}) for run in (earlier, now))
        if was.get("sha256") == now_.get("sha256"):
            continue
        pair = [str(one.get("path", "none")) for one in (was, now_)]
        if pair[0] == pair[1]:
            pair = [f"{one['path']} ({one['bytes']:,} bytes)" for one in (was, now_)]
        changes.append(Change(name, *pair))
    return changes


def _shown(value: Any) -> str:
    """As it stands in the file: what is no JSON value is written as text."""
    return json.dumps(value, sort_keys=True, default=str).strip('"')
