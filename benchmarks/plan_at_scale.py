"""What it costs to plan the steps of a run over many processes, and how equal their work is, against sharding by count.

    python benchmarks/plan_at_scale.py                                    1,024 processes, a million rows
    python benchmarks/plan_at_scale.py --processes 64 --per_device 4

Lengths are drawn as those of text are: log-normal, from 8 to 2,048 tokens. One process plans for itself alone, as in
a run: the order of a pass, then its share of each step. Sharding by count gives every process each N-th row of a batch,
as `DistributedSampler` does. The cost of a row is its tokens, and its attention besides (Hoffmann et al., 2022,
appendix F: 6 × weights a token, and 12 × layers × width × length a token, forward and backward) for a model of 24
layers and width 2,048, relative to the tokens alone.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

from burnish.data.order import Shuffled
from burnish.data.plan import Plan
from burnish.data.share import Share, equal_work

LAYERS, WIDTH = 24, 2048


def main() -> None:
    options = parsed()
    lengths = drawn(options.rows)
    order = Shuffled(options.rows, seed=0)
    plan = Plan(options.rows, options.per_device * options.processes, options.accumulation, order)
    figures = {**cost_of_planning(plan, lengths, options), **imbalance(plan, lengths, options)}
    print(table(options, figures))
    if options.out:
        options.out.write_text(json.dumps({**vars(options), "out": None, **figures}, indent=1))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--per_device", type=int, default=8, help="examples of a process and accumulation step")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10, help="steps that are planned and compared")
    parser.add_argument("--out", type=Path, default=None, help="file for the figures, as JSON")
    return parser.parse_args()


def drawn(rows: int) -> list[int]:
    """Tokens of each row: half of them have fewer than 180, one in twenty more than 900."""
    found = np.random.default_rng(0).lognormal(mean=5.2, sigma=1.0, size=rows)
    return np.clip(found, 8, 2048).astype(int).tolist()


def cost_of_planning(plan: Plan, lengths: list[int], options: argparse.Namespace) -> dict[str, float]:
    """Seconds and memory of one process: once a pass, and for its share of a step."""
    tracemalloc.start()
    plan.batches(0, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    begun = time.process_time()
    plan.batches(1, 0)
    of_pass = time.process_time() - begun
    share = Share(options.processes // 2, options.processes)
    begun = time.process_time()
    for step in range(options.steps):
        share.of(plan.batches(1, step), lengths.__getitem__)
    of_step = (time.process_time() - begun) / options.steps
    return {"pass_seconds": of_pass, "pass_peak_mib": peak / 2**20, "step_ms": 1000 * of_step}


def imbalance(plan: Plan, lengths: list[int], options: argparse.Namespace) -> dict[str, Any]:
    """Work of the process that has most over the mean of all: for how much of a step the others wait. Mean and worst of
    the steps."""
    ways: dict[str, list[float]] = {}
    for step in range(options.steps):
        batches = plan.batches(0, step)
        rows = [row for batch in batches for row in batch]
        by_work = equal_work([lengths[row] for row in rows], options.processes)
        shares = {
            "by work": [[rows[place] for place in part] for part in by_work],
            "by count": [[row for batch in batches for row in batch[index :: options.processes]]
                         for index in range(options.processes)],
        }  # fmt: skip
        for way, found in shares.items():
            for what, work in (("tokens", tokens), ("cost", cost)):
                of_each = np.array([work(np.array([lengths[row] for row in part])) for part in found])
                ways.setdefault(f"{way}, {what}", []).append(float(of_each.max() / of_each.mean()))
    return {name: {"mean": float(np.mean(found)), "worst": max(found)} for name, found in ways.items()}


def tokens(lengths: np.ndarray[Any, Any]) -> float:
    return float(lengths.sum())


def cost(lengths: np.ndarray[Any, Any]) -> float:
    """Operations over those of a token without attention."""
    weights = 12 * LAYERS * WIDTH**2
    return float((lengths * (1 + 12 * LAYERS * WIDTH * lengths / (6 * weights))).sum())


def table(options: argparse.Namespace, figures: dict[str, Any]) -> str:
    size = options.per_device * options.processes * options.accumulation
    lines = [
        f"{options.processes:,} processes, {options.rows:,} rows, steps of {size:,} examples",
        f"a pass: {figures['pass_seconds']:.2f} s of CPU time, {figures['pass_peak_mib']:.0f} MiB",
        f"a step: {figures['step_ms']:.1f} ms of CPU time on each process",
        "most work of a process over the mean (mean and worst of the steps):",
    ]
    lines += [
        f"  {name:<17} {figures[name]['mean']:.3f}  {figures[name]['worst']:.3f}" for name in figures if "," in name
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
