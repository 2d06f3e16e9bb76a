"""`burnish train --push_to_hub`, against a hub on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import TOKEN, Hub, local_hub

from burnish.checkpoint import layout
from burnish.cli.main import main

NAME = "me/reviews"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with local_hub(monkeypatch) as found:
        yield found


@pytest.fixture
def words(train_words: list[str]) -> list[str]:
    return [*train_words, "--push_to_hub", "--hub_model_id", NAME, "--hub_token", TOKEN]


def state(folder: Path) -> str:
    return str(json.loads((folder / layout.RUN).read_text())["state"])


def test_the_model_with_its_card_and_curve(
    hub: Hub, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(words) == 0
    said = "".join(capsys.readouterr())
    files = hub.files(NAME)
    assert {"README.md", "loss_curve.png", "model.safetensors", "config.json", "tokenizer.json"} <= set(files)
    assert not {"run.json", "log.jsonl", "all_results.json"} & set(files)
    assert all(content == (out / name).read_bytes() for name, content in files.items() if name != ".gitattributes")
    assert f"uploading the model to {hub.url}/{NAME}" in said and hub.messages(NAME).count("End of training") == 1
    card = files["README.md"].decode()
    assert f"hf download {NAME}" in card and "| accuracy |" in card
    everything = [said, *(path.read_bytes().decode(errors="replace") for path in out.rglob("*") if path.is_file())]
    assert not any(TOKEN in text for text in everything)
    assert "<HUB_TOKEN>" in (out / layout.RUN).read_text()


def test_a_wrong_token_is_found_before_the_data_are_read(
    hub: Hub, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.csv").write_text("nothing to train on")
    assert main([*words, "--hub_token", "hf_" + "w" * 30]) == 1
    assert "does not take the token" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_model_that_does_not_get_there_and_the_same_command_again(
    hub: Hub, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    hub.fails["/commit/"] = (500, 99, "Internal Error")
    assert main(words) == 1
    said = capsys.readouterr()
    assert f"hf upload {NAME} {out} ." in said.err and "eval_accuracy" in said.out
    assert (out / "model.safetensors").is_file() and state(out) == "failed"
    hub.fails.clear()
    assert main(words) == 0
    assert hub.files(NAME)["model.safetensors"] == (out / "model.safetensors").read_bytes()
    assert state(out) == "finished" and "resuming" in capsys.readouterr().out
