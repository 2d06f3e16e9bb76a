"""From the command to the end of the first step, the whole process: `burnish train` and the usual script.

Both get a model folder and a CSV file, say the loss of every step, and are stopped at the first. What they keep of the
file between runs is not there yet.

python benchmarks/first_step.py --library transformers
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure
import psutil
import reviews
import torch
import transformers

HERE = Path(__file__).resolve().parent
TRAIN_FILE = HERE.parent / "src" / "burnish" / "demo" / "reviews_train.csv"
LOSS = re.compile(r"\bloss\D{1,6}(\d+\.\d+)")
COMMANDS = {"burnish": ["-m", "burnish", "train"], "transformers": [str(HERE / "usual_script.py")]}
SETTINGS = {
    "max_steps": "50",
    "per_device_train_batch_size": "8",
    "learning_rate": "5e-5",
    "logging_steps": "1",
    "save_strategy": "no",
    "eval_strategy": "no",
    "report_to": "none",
    "disable_tqdm": "true",
    "use_cpu": "true",
    "train_sampling_strategy": "sequential",
}


def make_model(folder: Path) -> None:
    """A tiny BERT with its classifier: nothing is drawn when it is loaded."""
    tokenizer = reviews.tokenizer()
    torch.manual_seed(0)
    config = reviews.tiny_config(0.0, vocab_size=len(tokenizer))
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def command(library: str, folder: Path) -> list[str]:
    files = {"model_name_or_path": folder / "model", "train_file": TRAIN_FILE, "output_dir": folder / "out"}
    flags = [word for name, value in {**files, **SETTINGS}.items() for word in (f"--{name}", str(value))]
    return [sys.executable, "-u", *COMMANDS[library], *flags]


def until_first_loss(words: list[str], environment: dict[str, str], options: argparse.Namespace) -> None:
    started = time.perf_counter()
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if found := LOSS.search(line):
            break
    else:
        sys.exit(f"{' '.join(words)} ended without a loss:\n{''.join(said)[-4000:]}")
    wall = time.perf_counter() - started
    times, memory = psutil.Process(process.pid).cpu_times(), psutil.Process(process.pid).memory_info()
    process.send_signal(signal.SIGKILL)
    process.wait()
    cpu = times.user + times.system
    measure.report(
        options,
        [float(found[1])],
        cpu_seconds=cpu,
        wall_seconds=wall,
        peak_mib=memory.rss / 2**20,
        cpu_seconds_per_step=cpu,
    )


options = measure.parse(__doc__, steps=1)
with tempfile.TemporaryDirectory(prefix="bench-") as name:
    make_model(Path(name) / "model")
    environment = {**os.environ, "HF_DATASETS_CACHE": str(Path(name) / "cache")}
    until_first_loss(command(options.library, Path(name)), environment, options)
