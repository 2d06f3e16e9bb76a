"""Every number that a run logs, one JSON object a line, in `<output_dir>/log.jsonl`."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from burnish.core.progress import TrainerState

from .memory import peak_memory
from .pace import Paced, Rates
from .peak import peak_flops
from .values import Announced, record, split_of

logger = logging.getLogger(__name__)

FILE_NAME = "log.jsonl"


class JsonLinesCallback(Paced):
    """Appends every log, evaluation and prediction to `log.jsonl`, on the first process of the run.

    A line is ``{"kind": "log" | "evaluation" | "prediction" | "summary", "step", "epoch", "time", "num_examples_seen",
    "num_input_tokens_seen", ...}``, the time in UTC (ISO 8601), then what was logged. NaN and infinities are written
    as null and named in "nonfinite" (`values.record`). The file tells one story: a run that is resumed from step N
    drops the lines of later steps, and a fresh run moves the file of an earlier one aside as `log.1.jsonl`.

    A log of training with a loss also holds how fast it went since the last one, and the summary since the begin,
    without the time of evaluations and saving: "examples_per_second", "tokens_per_second" (real ones),
    "padding_avoided" (share of the positions of plain padded batches), "mfu" (share of the device's peak, where that is
    known), and "peak_memory_gib". They are here and not in `state.log_history`, which is the same for every
    run of the same settings.

    A file that cannot be written is reported once and does not stop the run.
    """

    def __init__(self) -> None:
        super().__init__()
        self._announced = Announced()
        self._peak: float | None = None
        self._begun_here: Path | None = None
        self._reported = False

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        path = self._path(args, state)
        if path is None:
            return
        self._peak = peak_flops(kwargs["model"], args) if kwargs.get("model") is not None else None
        super().on_train_begin(args, state, control, **kwargs)
        try:
            if state.global_step > 0:
                _forget_after(path, state.global_step)
            elif self._begun_here != path:
                _move_aside(path)
        except OSError as error:
            self._report(path, error)
        self._begun_here = None  # a further train() is another run

    def on_log(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        logs = kwargs["logs"]
        self._announced.logged(state.global_step, logs)
        split = split_of(logs)
        kind = {None: "log", "train": "summary"}.get(split, "evaluation")
        rates = (
            self.rates_since_last(state) if "loss" in logs else self.rates_of_run(state) if split == "train" else None
        )
        self._append(args, state, kind, {**logs, **_speed(rates, self._peak)})

    def on_evaluate(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        super().on_evaluate(args, state, control, **kwargs)
        self._append_news(args, state, "evaluation", kwargs["metrics"])

    def on_predict(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        super().on_predict(args, state, control, **kwargs)
        self._append_news(args, state, "prediction", kwargs["metrics"])

    def _append_news(self, args: Any, state: TrainerState, kind: str, metrics: Mapping[str, Any] | None) -> None:
        if metrics and self._announced.is_news(state.global_step, metrics):
            self._append(args, state, kind, metrics)

    def _append(self, args: Any, state: TrainerState, kind: str, values: Mapping[str, Any]) -> None:
        path = self._path(args, state)
        if path is None:
            return
        line = {
            "kind": kind,
            "step": state.global_step,
            "epoch": state.epoch,
            "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "num_examples_seen": state.num_examples_seen,
            "num_input_tokens_seen": state.num_input_tokens_seen,
            **values,
        }
        try:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                self._begun_here = path
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record(line), ensure_ascii=False) + "\n")
        except OSError as error:
            self._report(path, error)

    def _path(self, args: Any, state: TrainerState) -> Path | None:
        if not state.is_world_process_zero or args.output_dir is None:
            return None
        return Path(args.output_dir) / FILE_NAME

    def _report(self, path: Path, error: OSError) -> None:
        if not self._reported:
            logger.warning("The log file %s cannot be written (%s). The run goes on without it.", path, error)
        self._reported = True


def _speed(rates: Rates | None, peak: float | None) -> dict[str, float]:
    """The rates that are known, under the keys of the log, rounded to what can be measured."""
    if rates is None:
        return {}
    memory = peak_memory()
    found = {
        "examples_per_second": rates.examples_per_second,
        "tokens_per_second": rates.tokens_per_second,
        "padding_avoided": rates.padding_avoided,
        "mfu": rates.share_of(peak),
        "peak_memory_gib": memory / 2**30 if memory is not None else None,
    }
    return {key: float(f"{value:.4g}") for key, value in found.items() if value is not None}


def _forget_after(path: Path, step: int) -> None:
    """Drops the lines of steps after `step`, and a line that was cut off by a crash. The file is replaced whole."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    kept = [line for line in lines if (of := _step_of(line)) is not None and of <= step]
    if kept == lines:
        return
    fresh = path.with_name(f"{path.name}.tmp")
    with fresh.open("w", encoding="utf-8") as file:
        file.writelines(kept)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def _step_of(line: str) -> int | None:
    if not line.endswith("\n"):
        return None
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return None


def _move_aside(path: Path) -> None:
    """Renames an older file to the first free one of log.1.jsonl, log.2.jsonl, …"""
    if not path.exists() or path.stat().st_size == 0:
        return
    number = 1
    while (aside := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    path.rename(aside)
    logger.info("The log of an earlier run was moved to %s.", aside)
