"""`burnish train --predict_with_generate`: texts in a file and on the screen, and metrics that compare them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import tiny

from burnish.cli.main import main


def words_for(task: str, model: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    model.save_pretrained(folder / "model")
    tiny.tokenizer(eos_token="[SEP]").save_pretrained(folder / "model")
    with (folder / "rows.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["prompt", "completion"])
        table.writerows([f"w{5 + i} w{6 + i} w{7 + i}", f"w{7 + i} w{6 + i}"] for i in range(16))
    return [
        "train", "--task", task, "--model_name_or_path", str(folder / "model"),
        "--train_file", str(folder / "rows.csv"),
        "--validation_split", "0.25", "--output_dir", str(folder / "out"), "--use_cpu", "--max_steps", "2",
        "--eval_strategy", "steps", "--eval_steps", "1", "--save_strategy", "no",
    ]  # fmt: skip


@pytest.mark.parametrize("task", ["seq2seq", "causal-lm"])
def test_texts_are_generated_and_compared(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tiny.t5() if task == "seq2seq" else tiny.llama(max_position_embeddings=64)
    words = words_for(task, model, tmp_path, monkeypatch)
    assert (
        main([*words, "--predict_with_generate", "--generation_max_length", "4", "--generation_texts_shown", "1"]) == 0
    )
    texts = [json.loads(line) for line in (tmp_path / "out" / "texts" / "eval-2.jsonl").read_text().splitlines()]
    assert len(texts) == 4 and all(len(text["prompt"].split()) == 3 for text in texts)
    assert all(len(text["reference"].split()) == 2 and len(text["generated"].split()) <= 4 for text in texts)
    results = json.loads((tmp_path / "out" / "eval_results.json").read_text())
    assert {"eval_loss", "eval_gen_len", "eval_exact_match", "eval_chrf"} <= set(results)
    assert capfd.readouterr().out.count("generated  ") == 2


def test_decoding_settings_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = words_for("causal-lm", tiny.llama(max_position_embeddings=64), tmp_path, monkeypatch)
    settings = json.dumps({"max_new_tokens": 2, "do_sample": True})
    assert main([*words, "--predict_with_generate", "--generation_config", settings, "--metrics", "exact_match"]) == 0
    assert json.loads((tmp_path / "out" / "eval_results.json").read_text())["eval_gen_len"] <= 2


def test_rows_without_prompts_are_refused(train_words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*train_words, "--predict_with_generate"]) == 2
    assert "--predict_with_generate needs rows" in capfd.readouterr().err
