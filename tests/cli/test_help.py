"""Help, version and misuse, without loading what is heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from burnish.cli.flags import Flag
from burnish.cli.help import help_text
from burnish.cli.main import main

HEAVY = ("torch", "transformers", "datasets", "numpy")


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["train", "--help"],
        ["train", "--help-all"],
        ["predict", "--help"],
        ["demo", "--help"],
    ],
)
def test_help_loads_nothing_heavy(words):
    script = (
        "import sys; from burnish.cli.main import main; code = main(sys.argv[1:]); "
        f"sys.exit(code or ','.join(name for name in {HEAVY} if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("burnish") or "Usage: burnish" in done.stdout


def test_the_short_help_names_the_flags_used_most_and_the_long_one_all(capsys):
    assert main(["train", "--help"]) == 0
    short = capsys.readouterr().out
    assert main(["train", "--help-all"]) == 0
    every = capsys.readouterr().out
    for name in ("model_name_or_path", "train_file", "learning_rate", "num_train_epochs", "overwrite_output_dir"):
        assert f"--{name}" in short
    assert "--help-all" in short
    assert "--adam_beta1" in every and "--adam_beta1" not in short
    assert max(map(len, every.splitlines())) <= 120


def test_an_entry_says_choices_and_default():
    flag = Flag("task", "str", "a", "What to learn.", "Task", "task", choices=("a", "b"))
    assert "--task NAME" in help_text("Usage", [flag])
    assert "What to learn. One of: a, b. [a]" in help_text("Usage", [flag])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "Did you mean 'train'?"),
        (["train", "--learnin_rate", "1"], "Did you mean --learning_rate?"),
        (["train", "--train_file", "a.csv"], "Missing: --model_name_or_path, --output_dir"),
        (["train", "--model_name_or_path", "m", "--output_dir", "o"], "No data"),
        (["train", "nowhere.yaml"], "There is no file nowhere.yaml"),
        (["predict"], "Which model?"),
    ],
)
def test_misuse_is_one_message_and_code_2(words, said, capsys):
    assert main(words) == 2
    output = capsys.readouterr()
    assert said in output.err
    assert "Traceback" not in output.err and output.out == ""


def test_debug_shows_where(capsys):
    assert main(["trian", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_internal_error_says_that_it_is_a_bug(capsys, monkeypatch):
    def broken(words):
        raise KeyError("surprise")

    monkeypatch.setitem(sys.modules["burnish.cli.main"].COMMANDS, "train", broken)
    assert main(["train"]) == 1
    said = capsys.readouterr().err
    assert "bug in burnish" in said and "surprise" in said and "--debug" in said and "Traceback" not in said
