"""MiniLM on product reviews of very unequal length in two processes under torchrun, a core each: batches of 8 each.

The time of a step is that of the process that has most to do: the other one waits for it. CPU time of that process,
step by step, is what the wall time is where each process has a core to itself. Tokens are those that are attended to.

transformers multiplies this loss, and its gradient, by the number of processes, unless average_tokens_across_devices is
False, which it is here for both.

python benchmarks/two_processes.py --library transformers --steps 12
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import measure
import reviews
import torch
import training

FOLDER = "TWO_PROCESSES_FOLDER"
COUNT = 2


def worker(options: argparse.Namespace, folder: Path) -> None:
    """One process: trains, and writes down its tokens and CPU time of each step."""
    from transformers import DataCollatorWithPadding

    library = importlib.import_module(options.library)
    model, clock = reviews.model(options.dropout, num_labels=2), measure.Clock()
    steps: list[dict[str, float]] = []

    class Steps(library.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            clock.tick()
            steps.append({"tokens": 0})

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            steps[-1]["cpu"] = time.process_time() - clock.ticks[-1]

    def count(module: Any, args: Any, inputs: dict[str, Any]) -> None:
        if steps and torch.is_grad_enabled():
            steps[-1]["tokens"] += int(inputs["attention_mask"].sum())

    model.register_forward_pre_hook(count, with_kwargs=True)
    settings = library.TrainingArguments(**training.settings(options, batch=8), average_tokens_across_devices=False)
    run = library.Trainer(
        model=model,
        args=settings,
        train_dataset=reviews.dataset(truncation=True),
        data_collator=DataCollatorWithPadding(reviews.tokenizer()),
        callbacks=[Steps()],
    )
    with measure.Meter() as meter:
        run.train()
    losses = [float(entry["loss"]) for entry in run.state.log_history if "loss" in entry]
    report = {"steps": steps, "losses": losses, **meter.figures()}
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(report))


def launched(folder: Path) -> list[dict[str, Any]]:
    """What the processes have written down."""
    command = ["-m", "torch.distributed.run", f"--nproc_per_node={COUNT}", "--rdzv-backend=c10d",
               "--rdzv-endpoint=127.0.0.1:0", *sys.argv]  # fmt: skip
    environment = {**os.environ, FOLDER: str(folder), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the processes failed:\n{done.stderr[-4000:]}")
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(COUNT)]


def figures(ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All steps but the first, in which caches are filled, where there is another."""
    of_ranks = [rank["steps"][min(1, len(rank["steps"]) - 1) :] for rank in ranks]
    steps = list(zip(*of_ranks, strict=True))
    slowest = [max(part["cpu"] for part in step) for step in steps]
    return {
        "cpu_seconds": sum(rank["cpu_seconds"] for rank in ranks),
        "wall_seconds": max(rank["wall_seconds"] for rank in ranks),
        "peak_mib": max(rank["peak_mib"] for rank in ranks),
        "above_mib": max(rank["above_mib"] for rank in ranks),
        "cpu_seconds_per_step": statistics.mean(slowest),
        "cpu_seconds_per_step_of_ranks": [statistics.mean(part["cpu"] for part in one) for one in of_ranks],
        **{f"{what}_imbalance": imbalance(steps, what) for what in ("tokens", "cpu")},
    }


def imbalance(steps: Sequence[Sequence[dict[str, float]]], what: str) -> float:
    """Of the process that has most over the mean of all, mean of the steps."""
    found = [[part[what] for part in step] for step in steps]
    return statistics.mean(max(parts) / statistics.mean(parts) for parts in found)


def main() -> None:
    options = measure.parse(__doc__ or "", steps=12)
    if FOLDER in os.environ:
        worker(options, Path(os.environ[FOLDER]))
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        ranks = launched(Path(name))
    measure.report(options, ranks[0]["losses"], **figures(ranks))


if __name__ == "__main__":
    main()
