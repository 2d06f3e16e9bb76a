"""What importing costs: `import burnish` and `burnish --help` load no heavy package, a training only what it uses, and
every module imports with the required packages alone. Each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import source_tree
import tiny
from task_files import model_folder, reviews, write_csv

HEAVY = ("torch", "transformers", "numpy", "accelerate", "datasets", "matplotlib", "pandas", "pyarrow", "peft")
OPTIONAL = ("matplotlib", "peft", "bitsandbytes", "tensorboard", "sklearn", "scipy", "deepspeed", "evaluate", "wandb",
            "jiwer", "nltk", "rouge_score", "sacrebleu", "seqeval", "torchmetrics")  # fmt: skip

UNUSED = ("datasets", "pandas", "sklearn", "peft", "evaluate", "tensorboard", "transformers.trainer")
"""What fine-tuning on a CSV file has no use for."""


def run(code: str) -> str:
    """What a fresh Python prints for this code."""
    path = f"import sys; sys.path.insert(0, {str(source_tree.PACKAGE.parent)!r})\n"
    done = subprocess.run([sys.executable, "-c", path + code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


LOADED = f"print('loaded:', *sorted(name for name in {HEAVY!r} if name in sys.modules))"


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert run(f"import burnish; dir(burnish); {LOADED}").split() == ["loaded:"]


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["--help"], *([command, "--help"] for command in ("train", "plan", "evaluate", "predict", "runs"))],
    ids=" ".join,
)
def test_asking_the_command_line_for_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
from burnish.cli.main import main
assert not main({arguments!r})
{LOADED}
"""
    said = run(code)
    assert said.splitlines()[-1].split() == ["loaded:"]
    assert len(said.splitlines()) > 1


@pytest.mark.slow
@pytest.mark.newest
def test_training_on_a_file_loads_only_what_it_uses(tmp_path: Path) -> None:
    model = model_folder(tmp_path / "model", tiny.bert("SequenceClassification"))
    file = write_csv(tmp_path / "train.csv", reviews())
    flags = {"model_name_or_path": model, "train_file": file, "output_dir": str(tmp_path / "out"), "max_steps": "1"}
    words = ["train", *(word for name, value in flags.items() for word in (f"--{name}", value))]
    code = f"""
import os
os.environ["HF_DATASETS_CACHE"] = {str(tmp_path / "cache")!r}
from burnish.cli.main import main
assert not main({words!r})
print("loaded:", *(name for name in {UNUSED!r} if name in sys.modules))
"""
    assert run(code).splitlines()[-1].split() == ["loaded:"]


@pytest.mark.slow
def test_every_module_imports_with_the_required_packages_alone() -> None:
    modules = [source_tree.module_name(file) for file in source_tree.files() if file.stem != "__main__"]
    code = f"""
import importlib
sys.modules.update(dict.fromkeys({OPTIONAL!r}))  # importing one of these fails
for name in {modules!r}:
    importlib.import_module(name)
print(len({modules!r}))
"""
    assert int(run(code).splitlines()[-1]) > 20
