"""What a run is, written beside its results: `run_settings.json`.

Its settings and where each came from, the command, the versions, the fingerprints of the data files. It is written
before the first step; `finished` in it is set when all results are there.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from burnish.core.errors import UserError

from .fingerprints import DATA_FILES

FILE_NAME = "run_settings.json"
OF_NO_EFFECT = (
    *("output_dir", "overwrite_output_dir", "overwrite_cache", "resume_from_checkpoint", "do_train", "do_eval"),
    *("do_predict", "test_file", "max_predict_samples", "max_eval_samples", "preprocessing_num_workers", "cache_dir"),
    *("pad_to_max_length", "run_name", "project", "disable_tqdm", "report_to", "skip_memory_metrics", "token_budget"),
    *("per_device_eval_batch_size", "prediction_loss_only", "load_best_model_at_end", "debug"),
    *("metric_for_best_model", "greater_is_better"),
)
"""Settings that may differ when a run goes on: they do not change how the weights come about."""
OF_NO_EFFECT_BY_PREFIX = ("logging_", "log_", "hub_", "push_to_hub", "save_", "eval_", "include_", "trackio_")
PACKAGES = ("burnish", "torch", "transformers", "tokenizers", "datasets", "accelerate", "numpy")
LENGTH_OF_RUN = ("num_train_epochs", "max_steps")


@dataclass
class RunRecord:
    """What `run_settings.json` holds."""

    task: str
    settings: dict[str, dict[str, Any]]
    """Name to {"value", "origin"}; the origin is "flag", "file", "default", or why burnish chose it."""
    command: str
    versions: dict[str, str]
    data_files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Setting to {"path", "bytes", "sha256"}."""
    started: str = ""
    finished: str | None = None

    def write(self, folder: Path) -> None:
        """Writes the file whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{FILE_NAME}.part"
        unfinished.write_text(json.dumps(asdict(self), indent=2, default=str) + "\n", encoding="utf-8")
        os.replace(unfinished, folder / FILE_NAME)

    def finish(self, folder: Path) -> None:
        self.finished = now()
        self.write(folder)

    @classmethod
    def read(cls, folder: Path) -> RunRecord | None:
        """The record of a folder; None where there is none. Raises `UserError` for one that cannot be read."""
        path = folder / FILE_NAME
        if not path.is_file():
            return None
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise UserError(f"{path} cannot be read ({error}). Choose another --output_dir.") from None


@dataclass(frozen=True)
class Change:
    """A setting that another run in the folder had otherwise."""

    name: str
    was: str
    now: str


def differences(earlier: RunRecord, record: RunRecord) -> list[Change]:
    """Settings of effect in which two runs differ, and data files whose content does."""
    changes = [Change("task", earlier.task, record.task)] if earlier.task != record.task else []
    for name in sorted({*earlier.settings, *record.settings}):
        was, now_ = (_shown(run.settings.get(name, {}).get("value")) for run in (earlier, record))
        if was != now_ and _has_effect(name) and name not in DATA_FILES:
            changes.append(Change(name, was, now_))
    return changes + _changed_files(earlier, record)


def _has_effect(name: str) -> bool:
    return name not in OF_NO_EFFECT and not name.startswith(OF_NO_EFFECT_BY_PREFIX)


def _changed_files(earlier: RunRecord, record: RunRecord) -> list[Change]:
    """A file that only moved is the same file."""
    changes = []
    for name in ("train_file", "validation_file"):
        was, now_ = (run.data_files.get(name, {}) for run in (earlier, record))
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


def versions() -> dict[str, str]:
    """Versions of what computes."""
    import platform
    from importlib import metadata

    installed = {dist.name.lower(): dist.version for dist in metadata.distributions() if dist.name}
    found = {name: installed[name] for name in PACKAGES if name in installed}
    return {"python": platform.python_version(), **found}


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
