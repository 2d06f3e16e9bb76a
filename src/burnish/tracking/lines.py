"""Logs as lines of text: numbers at the same place in every line, the unit beside each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from burnish.core.progress import TrainerState

from .pace import Rates
from .values import MEASURES, plain

SHORT_NAMES = {"learning_rate": "lr", "grad_norm": "grad"}
OMITTED = ("epoch", "step", "total_flos", "num_input_tokens_seen")
"""Keys that say where the run is, which the line says anyway, or what it cost."""
GAP = "  "
LONGEST_TEXT = 40


def number(value: float) -> str:
    """About four digits: 0.4312, 12.31, 4821, 3.1e-05, 2.5e+06, nan."""
    size = abs(value)
    if not math.isfinite(value) or isinstance(value, int):
        return str(value)
    if size == 0 or 1e-3 <= size < 10:
        return f"{value:.4f}"
    if size < 1e-3 or size >= 1e6:
        return f"{value:.1e}"
    return f"{value:.2f}" if size < 1000 else f"{value:.0f}"


def quantity(value: float) -> str:
    """Three digits and a power of a thousand: 8.1, 812, 41.2k, 3.4M."""
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            return f"{value:.0f}{unit}" if value >= 99.5 or (not unit and value >= 10) else f"{value:.1f}{unit}"
        value /= 1000
    return f"{value:.0f}T"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds: 0:03:12."""
    return str(timedelta(seconds=round(seconds)))


def place(state: TrainerState) -> str:
    """Where the run is: step and epoch, as wide at the first step as at the last."""
    width = len(str(state.max_steps))
    epochs = len(f"{max(state.num_train_epochs, state.epoch):.2f}")
    step = (
        f"step {state.global_step:>{width}}/{state.max_steps}" if state.max_steps > 0 else f"step {state.global_step}"
    )
    return f"{step}{GAP}epoch {state.epoch:>{epochs}.2f}"


def training_numbers(logs: Mapping[str, Any]) -> str:
    """Loss and learning rate first, then whatever else was logged."""
    parts = []
    if "loss" in logs:
        parts.append(f"loss {_text(logs['loss']):>7}")
    if "learning_rate" in logs:
        parts.append(f"lr {_text(logs['learning_rate'], '.1e')}")
    for key, value in logs.items():
        if key not in (*OMITTED, "loss", "learning_rate"):
            parts.append(f"{SHORT_NAMES.get(key, key)} {_text(value):>6}")
    return GAP.join(parts)


def pace_numbers(rates: Rates, memory: int | None, remaining: float | None = None, peak: float | None = None) -> str:
    """Speed, padding avoided, share of the `peak` (FLOP/s), time left (seconds) and memory (bytes); without what is not
    known."""
    parts = []
    if rates.examples_per_second is not None:
        parts.append(f"{quantity(rates.examples_per_second):>5} ex/s")
    if rates.tokens_per_second is not None:
        parts.append(f"{quantity(rates.tokens_per_second):>5} tok/s")
    if rates.padding_avoided is not None:
        parts.append(f"padding avoided {rates.padding_avoided:>3.0%}")
    mfu = rates.share_of(peak)
    if mfu is not None:
        parts.append(f"MFU {mfu:.0%}")
    if remaining:
        parts.append(f"ETA {duration(remaining)}")
    if memory is not None:
        parts.append(f"{memory / 2**30:.1f} GiB" if memory >= 2**30 else f"{memory >> 20} MiB")
    return GAP.join(parts)


def metrics_line(split: str, metrics: Mapping[str, Any], state: TrainerState) -> str:
    """One line for a finished pass: its name, where the run is, every metric without the prefix, the time it took."""
    values = {key.removeprefix(f"{split}_"): value for key, value in metrics.items()}
    parts = [f"{split.replace('_', ' '):<5}", place(state)]
    parts += [f"{name} {_text(value)}" for name, value in values.items() if name not in (*OMITTED, *MEASURES)]
    took = []
    if "runtime" in values:
        seconds = plain(values["runtime"])
        took.append(f"{seconds:.1f} s" if seconds < 60 else duration(seconds))
    if "samples_per_second" in values:
        took.append(f"{quantity(plain(values['samples_per_second']))} ex/s")
    return GAP.join([*parts, f"({', '.join(took)})"] if took else parts)


def _text(value: Any, style: str = "") -> str:
    value = plain(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:{style}}" if style else number(value)
    text = f"[{' '.join(map(_text, value))}]" if isinstance(value, list) else str(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
