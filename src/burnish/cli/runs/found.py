"""The runs below a folder, told by what they left there; without torch, and without reading weights."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

from burnish.checkpoint import files, layout
from burnish.checkpoint.find import checkpoints
from burnish.checkpoint.process import is_alive
from burnish.checkpoint.run_id import run_of
from burnish.checkpoint.run_manifest import FINISHED, RUNNING, RunManifest
from burnish.checkpoint.verify import problem_with
from burnish.core.errors import UserError

KILLED, UNKNOWN, UNFINISHED, DAMAGED = "killed", "unknown", "unfinished", "damaged"
"""States that no manifest holds: the process is gone, or is on another machine; a run of transformers that has steps
left; a manifest that cannot be read."""
LOG = "log.jsonl"
"""Of `tracking.jsonl`, which imports torch."""
TAIL = 1 << 16  # bytes of the log that are read


@dataclass
class FoundRun:
    """One run, and what it left in its folder."""

    folder: Path
    manifest: RunManifest | None
    state: str
    step: int | None
    max_steps: int | None
    best: dict[str, Any] | None
    """{"metric", "value", "step"}."""
    last_active: float
    """Seconds since 1970."""
    resume_from: str | None
    """The checkpoint that it would go on from; None for a run that is finished or under way, or that has none."""
    torn: dict[str, str] = field(default_factory=dict)
    """Checkpoints that are not whole, and why."""
    num_bytes: int = 0

    @property
    def by(self) -> str:
        return "burnish" if self.manifest is not None or self.state == DAMAGED else "transformers"

    def told(self) -> dict[str, Any]:
        """As JSON."""
        manifest = self.manifest
        return {
            "folder": str(self.folder),
            "by": self.by,
            "state": self.state,
            "reason": manifest.reason if manifest else None,
            "run_id": manifest.run_id if manifest else None,
            "step": self.step,
            "max_steps": self.max_steps,
            "best": self.best,
            "bytes": self.num_bytes,
            "started": manifest.started if manifest else None,
            "ended": manifest.ended if manifest else None,
            "last_active": datetime.fromtimestamp(self.last_active, timezone.utc).isoformat(timespec="seconds"),
            "resume_from": self.resume_from,
            "torn": self.torn,
        }


def find_runs(top: Path) -> list[FoundRun]:
    """All runs in a folder and below it, those that were active last first. Hidden folders are not looked into.

    Raises:
        UserError: there is no such folder.
    """
    if not top.is_dir():
        raise UserError(f"{top}: there is no such folder.")
    found: dict[Path, FoundRun] = {}
    sizes: dict[Path, int] = {}
    owners: dict[Path, Path] = {}
    for place, folders, names in os.walk(top):
        folder = Path(place)
        inside = owners.get(folder.parent)
        if layout.step_of(folder) is None and is_run(folder):
            found[folder] = read_run(folder)
            inside = folder
        if inside is not None:
            owners[folder] = inside
            sizes[inside] = sizes.get(inside, 0) + sum(map(_size, (folder / name for name in names)))
        folders[:] = sorted(name for name in folders if not name.startswith(".") or inside is not None)
    for folder, run in found.items():
        run.num_bytes = sizes[folder]
    return sorted(found.values(), key=lambda run: -run.last_active)


def is_run(folder: Path) -> bool:
    """Whether a run, of burnish or of transformers, has written in a folder."""
    return (folder / layout.RUN).is_file() or any(
        (path / layout.TRAINER_STATE).is_file() or (path / layout.MANIFEST).is_file() for path in checkpoints(folder)
    )


def read_run(folder: Path) -> FoundRun:
    """The run in a folder. What is damaged is told as its state."""
    manifest, damaged = None, False
    try:
        manifest = RunManifest.read(folder)
    except UserError:
        damaged = True
    traces = Traces(folder, manifest)
    state = DAMAGED if damaged else _state(traces)
    waits = state not in (FINISHED, RUNNING)
    return FoundRun(
        folder=folder,
        manifest=manifest,
        state=state,
        step=traces.step,
        max_steps=traces.max_steps,
        best=traces.best,
        last_active=traces.last_active,
        resume_from=traces.good[-1].name if waits and traces.good else None,
        torn=traces.torn,
    )


class Traces:
    """What the files of a run say of it, each read once."""

    def __init__(self, folder: Path, manifest: RunManifest | None) -> None:
        self.folder, self.manifest = folder, manifest
        problems = {path: problem_with(path, checksums=False) for path in checkpoints(folder)}
        problems = {path: problem for path, problem in problems.items() if path.is_dir()}  # not deleted meanwhile
        self.checkpoints = list(problems)
        self.torn = {path.name: problem for path, problem in problems.items() if problem}
        whole = [path for path in self.checkpoints if problems[path] is None]
        self.good = [path for path in whole if manifest is None or run_of(path) == manifest.run_id]
        """Those that this run can go on from: whole, and its own."""

    @cached_property
    def progress(self) -> dict[str, Any]:
        """The progress in the newest checkpoint, or at the end of a run; {} where there is none."""
        for place in (*reversed(self.good), *([self.folder] if self.manifest is None else [])):
            with contextlib.suppress(OSError, ValueError):
                return files.read_json(place / layout.TRAINER_STATE)
        return {}

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """The last entries of the run's log."""
        found = []
        for line in _tail(self.folder / LOG):
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                found.append(entry if isinstance(entry, dict) else {})
        return [entry for entry in found if isinstance(entry.get("step"), int)]

    @property
    def result(self) -> dict[str, Any]:
        return self.manifest.result if self.manifest is not None else {}

    @property
    def step(self) -> int | None:
        logged = self.log[-1]["step"] if self.log and self.manifest is not None else None
        told = (self.result.get("step"), logged, self.progress.get("global_step"))
        return max((step for step in told if step is not None), default=None)

    @property
    def max_steps(self) -> int | None:
        own = self.manifest.max_steps if self.manifest is not None else None
        return own or self.progress.get("max_steps")

    @property
    def best(self) -> dict[str, Any] | None:
        """The best evaluation; where the run compares none, the one with the lowest loss."""
        if self.result.get("best") is not None:
            return dict(self.result["best"])
        history = self.progress.get("log_history") or []
        value, step = self.progress.get("best_metric"), self.progress.get("best_global_step")
        if value is not None:
            return {"metric": self._name_of_best(history, value), "value": value, "step": step}
        losses = [entry for entry in [*history, *self.log] if isinstance(entry.get("eval_loss"), (int, float))]
        if not losses:
            return None
        lowest = min(losses, key=lambda entry: entry["eval_loss"])
        return {"metric": "eval_loss", "value": lowest["eval_loss"], "step": lowest["step"]}

    def _name_of_best(self, history: list[dict[str, Any]], value: float) -> str:
        setting = self.manifest.settings.get("metric_for_best_model", {}) if self.manifest is not None else {}
        if setting.get("value"):
            return f"eval_{str(setting['value']).removeprefix('eval_')}"
        named = (name for entry in history for name, found in entry.items() if found == value and "eval" in name)
        return next(named, "metric")

    @property
    def last_active(self) -> float:
        paths = [self.folder / layout.RUN, self.folder / LOG, *self.checkpoints, self.folder / layout.TRAINER_STATE]
        return max(map(_written, paths))


def _state(traces: Traces) -> str:
    manifest = traces.manifest
    if manifest is None:
        step, last = traces.step, traces.max_steps
        return FINISHED if step is not None and last and step >= last else UNFINISHED
    if manifest.state != RUNNING:
        return manifest.state
    alive = is_alive(manifest.process)
    return UNKNOWN if alive is None else RUNNING if alive else KILLED


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:  # gone meanwhile
        return 0


def _written(path: Path) -> float:
    """Seconds since 1970; 0 where there is no such file."""
    try:
        return path.stat().st_mtime
    except OSError:  # gone meanwhile, too
        return 0.0


def _tail(path: Path) -> Iterator[str]:
    """The last whole lines of a file."""
    try:
        with path.open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            file.seek(max(0, length - TAIL))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return
    yield from lines[1:] if length > TAIL else lines
