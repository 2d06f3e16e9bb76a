"""How long training stands still for a checkpoint of SmolLM2-135M with the two moments of AdamW (1.6 GB).

The stall of a save is the time from the end of its step to the start of the next one, less what lies between two steps
otherwise. Steps that begin while the checkpoint is not yet there are those that a write behind the training slows down.

python benchmarks/checkpoint_stall.py --library transformers --steps 26
"""

import argparse
import importlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import chats
import measure
import training

SAVE_STEPS, LENGTH = 12, 96


class Watch:
    """Wall and CPU time (of all threads) at the start and the end of each step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begins: list[tuple[float, float]] = []
        self.ends: list[tuple[float, float]] = []
        self.behind: list[bool] = []
        """Of each step, whether the latest checkpoint was still being written when it began."""

    def begin(self, steps_done: int) -> None:
        latest = steps_done // SAVE_STEPS * SAVE_STEPS
        self.behind.append(latest > 0 and not (self.folder / f"checkpoint-{latest}").exists())
        self.begins.append((time.perf_counter(), time.process_time()))

    def end(self) -> None:
        self.ends.append((time.perf_counter(), time.process_time()))

    def figures(self) -> dict[str, Any]:
        """Of wall time: the stall of each save, their mean, and how much longer steps take during a write."""
        walls, cpus = (self._stalls(clock) for clock in (0, 1))
        seconds = [end[0] - begin[0] for begin, end in zip(self.begins, self.ends, strict=True)]
        usual = [took for took, behind in list(zip(seconds, self.behind, strict=True))[1:] if not behind]
        during = [took for took, behind in zip(seconds, self.behind, strict=True) if behind]
        slower = statistics.median(during) / statistics.median(usual) if during and usual else 1.0
        return {
            "stalls_seconds": walls,
            "stall_seconds": statistics.mean(walls),
            "stall_cpu_seconds": statistics.mean(cpus),
            "step_seconds": statistics.median(usual or seconds),
            "steps_during_write": len(during),
            "step_time_during_write": slower,
        }

    def _stalls(self, clock: int) -> list[float]:
        """For each save that another step follows."""
        gaps = [after[clock] - end[clock] for end, after in zip(self.ends, self.begins[1:], strict=False)]
        usual = [gap for number, gap in enumerate(gaps, start=1) if number % SAVE_STEPS]
        return [gap - statistics.median(usual) for gap in gaps[SAVE_STEPS - 1 :: SAVE_STEPS]]


def main(options: argparse.Namespace, folder: Path) -> None:
    library = importlib.import_module(options.library)
    watch = Watch(folder)

    class Times(library.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            watch.begin(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            watch.end()

    rows = chats.conversations(chats.tokenizer(), options.steps)
    rows = rows.map(lambda row: {name: values[:LENGTH] for name, values in row.items()})
    saving = {"output_dir": str(folder), "save_strategy": "steps", "save_steps": SAVE_STEPS}
    args = library.TrainingArguments(**{**training.settings(options, batch=1), **saving})
    run = library.Trainer(model=chats.model(), args=args, train_dataset=rows, callbacks=[Times()])
    with measure.Meter() as meter:
        run.train()
    losses = [float(entry["loss"]) for entry in run.state.log_history if "loss" in entry]
    per_step = meter.cpu / options.steps
    measure.report(options, losses, **meter.figures(), cpu_seconds_per_step=per_step, **watch.figures())


if __name__ == "__main__":
    options = measure.parse(__doc__, steps=26, logging_steps=1)
    options.steps = max(options.steps, SAVE_STEPS + 1)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        main(options, Path(name))
