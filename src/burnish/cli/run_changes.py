"""Whether two runs are the same run: their settings of effect, and their data files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from burnish.checkpoint.run_manifest import RunManifest

from .fingerprints import DATA_FILES

OF_NO_EFFECT = (
    *("output_dir", "overwrite_output_dir", "overwrite_cache", "resume_from_checkpoint", "do_train", "do_eval"),
    *("do_predict", "test_file", "max_predict_samples", "max_eval_samples", "preprocessing_num_workers", "cache_dir"),
    *("pad_to_max_length", "run_name", "project", "disable_tqdm", "report_to", "skip_memory_metrics", "token_budget"),
    *("per_device_eval_batch_size", "prediction_loss_only", "load_best_model_at_end", "debug"),
    *("metric_for_best_model", "greater_is_better", "max_time"),
)
"""Settings that may differ when a run goes on: they do not change how the weights come about."""
OF_NO_EFFECT_BY_PREFIX = ("logging_", "log_", "hub_", "push_to_hub", "save_", "eval_", "include_", "trackio_", "keep_")
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
    return name not in OF_NO_EFFECT and not name.startswith(OF_NO_EFFECT_BY_PREFIX)


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
