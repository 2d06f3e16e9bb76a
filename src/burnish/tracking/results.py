"""The results of a run as a table and as files. The functions with `self` become methods of the Trainer."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from burnish.core.progress import TrainerState

from .pace import share_avoided
from .values import plain, record


def metrics_format(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics as one reads them: times as h:mm:ss, memory in MB, floating-point operations in GF, 4 decimals."""
    return {key: _readable(key, plain(value)) for key, value in metrics.items()}


def _readable(key: str, value: Any) -> Any:
    if not isinstance(value, (int, float)):
        return value
    if "_mem_" in key:
        return f"{int(value) >> 20}MB"
    if key.endswith("_runtime"):
        return _clock(value)
    if key == "total_flos":
        return f"{int(value) >> 30}GF"
    return round(value, 4) if isinstance(value, float) else value


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds, 2), 60)
    return f"{int(minutes) // 60}:{int(minutes) % 60:02}:{rest:05.2f}"


def log_metrics(self: Any, split: str, metrics: Mapping[str, Any]) -> None:
    """Prints the metrics of `split` ("train", "eval", "test") as a table, on the first process."""
    if not self.is_world_process_zero():
        return
    rows = {str(key): str(value) for key, value in sorted(metrics_format(metrics).items())}
    wide, far = (max(map(len, texts), default=0) for texts in (rows, rows.values()))
    print(f"***** {split} metrics *****")
    for key, value in rows.items():
        print(f"  {key:<{wide}} = {value:>{far}}")


def save_metrics(self: Any, split: str, metrics: Mapping[str, Any], combined: bool = True) -> None:
    """Writes `<split>_results.json` into the output folder, and adds the metrics to `all_results.json`.

    Arrays become lists; NaN becomes null and is named under "nonfinite". Only the first process writes.
    """
    if not self.is_world_process_zero():
        return
    folder = Path(self.args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / f"{split}_results.json", record(metrics))
    if combined:
        path = folder / "all_results.json"
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        _write(path, _together(before, record(metrics)))


def save_state(self: Any) -> None:
    """Writes the progress of the run as `trainer_state.json` into the output folder, on the first process."""
    if not self.is_world_process_zero():
        return
    folder = Path(self.args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    self.state.save_to_json(str(folder / "trainer_state.json"))


def speed_metrics(
    split: str,
    start_time: float,
    num_samples: int | None = None,
    num_steps: int | None = None,
    num_tokens: int | None = None,
) -> dict[str, float]:
    """Seconds since `start_time` (of `time.time()`), and samples, steps and tokens per second, under known keys."""
    seconds = time.time() - start_time
    speeds = {f"{split}_runtime": round(seconds, 4)}
    for unit, count in (("samples", num_samples), ("steps", num_steps), ("tokens", num_tokens)):
        if count is not None and seconds > 0:
            speeds[f"{split}_{unit}_per_second"] = round(count / seconds, 3)
    return speeds


class Begun(NamedTuple):
    """Where a call of `train()` began."""

    time: float
    steps: int
    examples: int
    tokens: int

    @classmethod
    def at(cls, state: TrainerState) -> Begun:
        return cls(time.time(), state.global_step, state.num_examples_seen, state.num_input_tokens_seen)

    def metrics(self, state: TrainerState) -> dict[str, float]:
        """What transformers logs of the call when it ends, over the whole time."""
        examples, steps = state.num_examples_seen - self.examples, state.global_step - self.steps
        speed = speed_metrics("train", self.time, examples, steps)
        return {**speed, "total_flos": state.total_flos, "train_loss": state.train_loss}

    def efficiency(self, state: TrainerState, training_seconds: float) -> dict[str, float]:
        """Real tokens a second, over the `training_seconds` that were spent on neither evaluation nor saving, and the
        share of padding that was avoided in the whole run."""
        found = {}
        tokens = state.num_input_tokens_seen - self.tokens
        if tokens > 0 and training_seconds > 0:
            found["train_tokens_per_second"] = round(tokens / training_seconds, 3)
        avoided = share_avoided(state.num_positions, state.num_positions_plain)
        if avoided is not None:
            found["train_padding_avoided"] = round(avoided, 4)
        return found


def _together(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Newer metrics win, and with them what is said about their not being finite."""
    earlier = {key: word for key, word in before.get("nonfinite", {}).items() if key not in now}
    together = {**before, **now}
    together.pop("nonfinite", None)
    nonfinite = {**earlier, **now.get("nonfinite", {})}
    return {**together, "nonfinite": nonfinite} if nonfinite else together


def _write(path: Path, content: dict[str, Any]) -> None:
    """Replaces the file whole, so that a crash leaves the older results."""
    fresh = path.with_name(f"{path.name}.tmp")
    fresh.write_text(json.dumps(content, indent=4, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(fresh, path)
