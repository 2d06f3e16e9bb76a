"""What every workload shares: its flags, its clock and its memory, and the report that it leaves."""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

# Before torch is loaded: one thread, so that CPU time is comparable and nothing waits for a busy core.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch

torch.set_num_threads(1)

LIBRARIES = ("burnish", "transformers", "trl", "lightning", "bare")
STATUS = Path("/proc/self/status")


def parse(description: str, steps: int, logging_steps: int = 50) -> argparse.Namespace:
    """The flags of a workload; `dropout` is what the model should have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--library", choices=LIBRARIES, default="burnish", help="whose trainer; bare: a plain loop")
    parser.add_argument("--steps", type=int, default=steps, help="optimizer steps, or batches to evaluate")
    parser.add_argument(
        "--check", action="store_true", help="nothing random, every loss: comparable with another library"
    )
    parser.add_argument("--logging_steps", type=int, default=logging_steps)
    parser.add_argument("--out", type=Path, default=None, help="file for the report, as JSON")
    options = parser.parse_args()
    options.dropout = 0.0 if options.check else 0.1
    options.logging_steps = 1 if options.check else options.logging_steps
    return options


class Clock:
    """CPU seconds of this process, all threads, at the start and at the end of each step."""

    def __init__(self) -> None:
        self.ticks: list[float] = []

    def tick(self) -> None:
        self.ticks.append(time.process_time())

    @property
    def num_steps(self) -> int:
        """The steps that count: all but the first, in which caches are filled, where there is another."""
        return max(1, len(self.ticks) - 2)

    def seconds(self) -> float:
        return self.ticks[-1] - self.ticks[-1 - self.num_steps]

    def seconds_per_step(self) -> float:
        return self.seconds() / self.num_steps


class Meter:
    """What the work inside a `with` costs this process: CPU and wall seconds, peak memory."""

    def __enter__(self) -> Meter:
        gc.collect()
        forget_peak()
        self.resident_mib = resident_mib()
        self.wall, self.cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *failure: object) -> None:
        self.cpu = time.process_time() - self.cpu
        self.wall = time.perf_counter() - self.wall
        self.peak_mib = peak_mib()

    @property
    def above_mib(self) -> float:
        """Peak memory above what was there before."""
        return self.peak_mib - self.resident_mib

    def figures(self) -> dict[str, float]:
        return {
            "cpu_seconds": self.cpu,
            "wall_seconds": self.wall,
            "peak_mib": self.peak_mib,
            "above_mib": self.above_mib,
        }


def forget_peak() -> None:
    """Lets the peak begin anew, where the system can (Linux); loading a model may have needed more than training."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        print("The peak of memory includes what came before: /proc/self/clear_refs cannot be written.", file=sys.stderr)


def peak_mib() -> float:
    return _status_mib("VmHWM")


def resident_mib() -> float:
    return _status_mib("VmRSS")


def _status_mib(name: str) -> float:
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def report(options: argparse.Namespace, losses: list[float], **figures: Any) -> None:
    """Writes what was measured to the file asked for, and shows it."""
    text = json.dumps({"library": options.library, "steps": options.steps, **figures, "losses": losses})
    if options.out:
        options.out.write_text(text)
    print(text, file=sys.stderr)
