"""What this machine can do at most, and how much of it useful work reaches."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from typing import Any

import torch

SIZE = 1024
ROUNDS = 40


def gemm_gflops() -> float:
    """Billions of operations a CPU second that products of two square float32 matrices reach; the median of a few."""
    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    product = left @ right
    seconds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        torch.mm(left, right, out=product)
        seconds.append(time.process_time() - start)
    return 2 * SIZE**3 / statistics.median(seconds) / 1e9


def useful_flops(model: Any, rows: Iterable[dict[str, Any]]) -> float:
    """Operations that forward and backward of these rows cannot do without: 6 for each weight and token (Kaplan et al.,
    2020, arXiv 2001.08361), those of the output layer only at positions with a target, no padding, no attention scores.
    """
    output = model.get_output_embeddings().weight
    tables = {id(table): table for table in (model.get_input_embeddings().weight, output)}
    body = sum(p.numel() for p in model.parameters() if id(p) not in tables)
    tokens = targets = 0
    for row in rows:
        tokens += len(row["input_ids"])
        targets += sum(label != -100 for label in row["labels"][1:])  # position i predicts label i + 1
    return 6.0 * (body * tokens + output.numel() * targets)


def share_of_limit(flops: float, cpu_seconds: float, gemm_before: float) -> dict[str, float]:
    """Figures for the report. The limit is the mean of one measured before the work and one measured now: what else the
    machine does moves both.
    """
    reached, most = flops / cpu_seconds / 1e9, (gemm_before + gemm_gflops()) / 2
    return {"useful_gflops": reached, "gemm_gflops": most, "gemm_share": reached / most}
