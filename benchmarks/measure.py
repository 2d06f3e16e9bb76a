"""What every workload shares: its flags, a clock of the process, a plain loop to compare with, and the report."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Before torch is loaded: one thread, so that CPU time is comparable and nothing waits for a busy core.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch

torch.set_num_threads(1)

LIBRARIES = ("burnish", "transformers", "bare")


def parse(description: str, steps: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--library", choices=LIBRARIES, default="burnish", help="whose Trainer; bare: a plain loop")
    parser.add_argument("--steps", type=int, default=steps, help="optimizer steps")
    parser.add_argument("--dropout", type=float, default=0.1, help="0 makes the losses of all libraries comparable")
    parser.add_argument("--logging_steps", type=int, default=50)
    parser.add_argument("--out", type=Path, default=None, help="file for the report, as JSON")
    return parser.parse_args()


class Clock:
    """CPU seconds of this process, all threads, at the end of each step."""

    def __init__(self) -> None:
        self.ticks: list[float] = []

    def tick(self) -> None:
        self.ticks.append(time.process_time())

    def seconds_per_step(self) -> float:
        """Mean over all steps but the first, in which caches are filled."""
        return (self.ticks[-1] - self.ticks[0]) / max(1, len(self.ticks) - 1)


def train_with(options: argparse.Namespace, model: Any, rows: Any, batch: int, collator: Any = None) -> None:
    """Trains with the library asked for, and writes the report. Rows are taken in their order."""
    clock = Clock()
    if options.library == "bare":
        train = bare_loop(options, model, rows, batch, collator, clock)
    else:
        train = trainer(options, model, rows, batch, collator, clock)
    cpu, wall = time.process_time(), time.perf_counter()
    losses = train()
    report = {
        "library": options.library,
        "steps": options.steps,
        "cpu_seconds": time.process_time() - cpu,
        "wall_seconds": time.perf_counter() - wall,
        "cpu_seconds_per_step": clock.seconds_per_step(),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "losses": losses,
    }
    text = json.dumps(report)
    if options.out:
        options.out.write_text(text)
    print(text, file=sys.stderr)


def trainer(
    options: argparse.Namespace, model: Any, rows: Any, batch: int, collator: Any, clock: Clock
) -> Callable[[], list[float]]:
    """Everything up to `train()`, by the library's own names."""
    library = importlib.import_module(options.library)

    class Ticks(library.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            clock.tick()

    args = library.TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="bench-"),
        max_steps=options.steps,
        per_device_train_batch_size=batch,
        train_sampling_strategy="sequential",
        logging_steps=options.logging_steps,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    run = library.Trainer(model=model, args=args, train_dataset=rows, data_collator=collator, callbacks=[Ticks()])

    def train() -> list[float]:
        run.train()
        return [float(entry["loss"]) for entry in run.state.log_history if "loss" in entry]

    return train


def bare_loop(
    options: argparse.Namespace, model: Any, rows: Any, batch: int, collator: Any, clock: Clock
) -> Callable[[], list[float]]:
    """The same training written by hand: AdamW, linear schedule, clipping, a loss printed now and then."""
    from transformers import default_data_collator, get_linear_schedule_with_warmup

    loader = torch.utils.data.DataLoader(rows, batch_size=batch, collate_fn=collator or default_data_collator)

    def train() -> list[float]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0, fused=True)
        schedule = get_linear_schedule_with_warmup(optimizer, 0, options.steps)
        losses: list[float] = []
        since, step = torch.zeros(()), 0
        model.train()
        while step < options.steps:
            for inputs in loader:
                loss = model(**inputs).loss
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                since += loss.detach()
                step += 1
                clock.tick()
                if step % options.logging_steps == 0:
                    losses.append(since.item() / options.logging_steps)
                    since.zero_()
                    print({"loss": losses[-1], "step": step})
                if step == options.steps:
                    break
        return losses

    return train
