"""`burnish merge`, and what points to it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import transformers
from checkpoint.test_merge import in_parts, same

from burnish.cli.main import main


def test_a_checkpoint_in_parts_becomes_a_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = tiny.llama()
    checkpoint = in_parts(tmp_path / "run", model)
    assert main(["predict", str(checkpoint), "--text", "a b"]) == 1
    assert f"burnish merge {checkpoint} MODEL_FOLDER" in capfd.readouterr().err
    assert main(["merge", str(checkpoint), str(tmp_path / "model")]) == 0
    assert f"{tmp_path / 'model'}: the model of {checkpoint}" in capfd.readouterr().out
    assert same(transformers.LlamaForCausalLM.from_pretrained(tmp_path / "model"), model)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["merge"], 2, "burnish merge out/checkpoint-500 model"),
        (["merge", "nothing", "model"], 1, "There is no folder nothing."),
        (["merge", "a", "b", "--fast"], 2, "There is no flag --fast."),
    ],
)
def test_what_cannot_be_done_is_said(
    words: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(words) == code
    assert said in capfd.readouterr().err


def test_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", "--help"]) == 0
    assert "burnish merge CHECKPOINT FOLDER" in capfd.readouterr().out
