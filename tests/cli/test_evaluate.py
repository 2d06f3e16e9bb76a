"""`burnish evaluate`: the numbers of an evaluation, and where a model is wrong, for each task."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
import task_files
import tiny

from burnish.cli.main import main


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def trained(folder: Path, task: str, model: Any, rows: list[dict[str, Any]], *more: str) -> tuple[str, str]:
    """The folder of a run, and the file that it was evaluated on."""
    file = task_files.write_jsonl(folder / "rows.jsonl", rows)
    model.save_pretrained(folder / "model")
    tiny.tokenizer(eos_token="[SEP]").save_pretrained(folder / "model")
    words = ["--task", task, "--model_name_or_path", str(folder / "model"), "--train_file", file]
    out = str(folder / "out")
    more = ("--validation_file", file, "--output_dir", out, "--use_cpu", "--max_steps", "2", *more)
    assert main(["train", *words, *more]) == 0
    return out, file


def results(folder: str) -> dict[str, Any]:
    return json.loads((Path(folder) / "eval_results.json").read_text())


def same_numbers(found: dict[str, Any], out: str) -> None:
    """Every metric is that of the run's own evaluation."""
    own = {name: value for name, value in results(out).items() if not name.endswith(("second", "runtime", "epoch"))}
    assert own and all(found[name] == pytest.approx(value, abs=1e-6) for name, value in own.items())


def test_a_classifier_is_looked_at(
    train_words: list[str],
    reviews: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(train_words) == 0
    capfd.readouterr()
    monkeypatch.chdir(tmp_path)
    out, file = Path("out"), reviews["validation"]
    assert main(["evaluate", "out", str(file), "--use_cpu"]) == 0
    said = capfd.readouterr().out
    assert "confusion matrix" in said and "calibration error" in said and "rows of highest loss" in said
    assert max(map(len, said.splitlines())) <= 100
    folder = out / "evaluation"
    same_numbers(results(str(folder))["metrics"], str(out))
    asked, worst = table(file), table(folder / "worst_rows.csv")
    losses = [float(row["loss"]) for row in worst]
    assert losses == sorted(losses, reverse=True) and len(worst) == len(asked)
    assert all(row["text"] == asked[int(row["row"])]["text"] for row in worst)
    assert all(row["label"] == asked[int(row["row"])]["label"] for row in worst)
    assert all(float(row["loss"]) == pytest.approx(-math.log(float(row["probability_of_label"])), abs=1e-3)
               for row in worst)  # fmt: skip
    matrix = table(folder / "confusion_matrix.csv")
    assert sum(int(row[name]) for row in matrix for name in ("negative", "positive")) == len(asked)


def test_json_metrics_and_a_folder_of_choice(
    train_words: list[str], reviews: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*train_words, "--metrics", "f1_macro"]) == 0
    capfd.readouterr()
    words = ["evaluate", str(tmp_path / "out"), str(reviews["validation"]), "--use_cpu", "--json"]
    assert main([*words, "--output_dir", str(tmp_path / "again")]) == 0
    found = json.loads(capfd.readouterr().out)["metrics"]
    assert "eval_f1_macro" in found and "eval_accuracy" not in found
    same_numbers(found, str(tmp_path / "out"))
    assert main([*words, "--metrics", "mcc", "--output_dir", str(tmp_path / "there"), "--worst_rows", "3"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert {"eval_mcc", "eval_loss"} <= set(said["metrics"]) and "eval_accuracy" not in said["metrics"]
    assert len(said["worst_rows"]) == 3 and not (tmp_path / "out" / "evaluation").exists()
    assert all(Path(path).is_file() and Path(path).parent == tmp_path / "there" for path in said["files"])


def test_what_cannot_be_evaluated_is_one_message(
    train_words: list[str],
    reviews: dict[str, Path],
    tiny_model: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(train_words) == 0
    out, plain = str(tmp_path / "out"), tmp_path / "plain.csv"
    plain.write_text("text,lable\nw5 good,positive\n")
    other = tmp_path / "other.csv"
    other.write_text("text,label\nw5 good,neutral\n")
    numbered = tmp_path / "numbered.csv"
    numbered.write_text("text,label\nw5 good,1\n")
    for words, code, facts in (
        ([out, str(plain)], 1, ["plain.csv", "'label'", "Did you mean 'lable'", "burnish predict"]),
        ([out, str(other)], 1, ["other.csv", "'neutral'", "Known labels"]),
        ([out], 2, ["burnish evaluate out data.csv"]),
        ([str(tmp_path / "ouz"), str(other)], 1, ["no folder"]),
        ([out, str(tmp_path / "none.csv")], 1, ["none.csv"]),
        ([out, str(reviews["validation"]), "--metrics", "acurracy"], 2, ["--metrics", "accuracy"]),
        ([str(tiny_model), str(numbered), "--task", "text-classification"], 2, ["was not trained as"]),
    ):
        capfd.readouterr()
        assert main(["evaluate", *words, "--use_cpu"]) == code, words
        said = capfd.readouterr().err
        assert all(fact in said for fact in facts), said


def test_numbers(tmp_path: Path) -> None:
    rows = [{"text": f"w{5 + i} w{6 + i}", "label": i / 7} for i in range(12)]
    out, file = trained(tmp_path, "text-classification", tiny.bert("MaskedLM"), rows)
    assert main(["evaluate", out, file, "--use_cpu"]) == 0
    same_numbers(results(f"{out}/evaluation")["metrics"], out)
    worst = table(Path(out) / "evaluation" / "worst_rows.csv")
    errors = [(float(row["label"]) - float(row["predicted"])) ** 2 for row in worst]
    assert [float(row["loss"]) for row in worst] == pytest.approx(errors, abs=1e-4)
    assert sum(errors) / len(errors) == pytest.approx(results(f"{out}/evaluation")["metrics"]["eval_mse"], abs=1e-4)


def test_entities(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kinds = [["O", "B-PER", "I-PER"], ["B-LOC", "O", "O"]]
    rows = [{"tokens": [f"w{5 + i}", f"w{6 + i}", f"w{7 + i}"], "ner_tags": kinds[i % 2]} for i in range(12)]
    out, file = trained(tmp_path, "token-classification", tiny.bert("MaskedLM"), rows)
    capfd.readouterr()
    assert main(["evaluate", out, file, "--use_cpu"]) == 0
    assert "entities" in capfd.readouterr().out
    same_numbers(results(f"{out}/evaluation")["metrics"], out)
    entities = {row["type"]: row for row in table(Path(out) / "evaluation" / "entities.csv")}
    assert {name: int(row["entities"]) for name, row in entities.items()} == {"LOC": 6, "PER": 6}
    worst = table(Path(out) / "evaluation" / "worst_rows.csv")
    assert len(worst) == 12 and all(row["token"] in row["tokens"] for row in worst)


@pytest.mark.parametrize("task", ["seq2seq", "causal-lm"])
def test_language_models(task: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = tiny.t5() if task == "seq2seq" else tiny.llama(max_position_embeddings=64)
    rows = [
        {"prompt": " ".join(f"w{5 + i + j}" for j in range(2 + i % 3)), "completion": f"w{7 + i} w{6 + i}"}
        for i in range(10)
    ]
    out, file = trained(tmp_path, task, model, rows)
    capfd.readouterr()
    assert main(["evaluate", out, file, "--use_cpu"]) == 0
    found, worst = results(f"{out}/evaluation")["metrics"], table(Path(out) / "evaluation" / "worst_rows.csv")
    same_numbers(found, out)
    if task == "causal-lm":
        assert found["eval_perplexity"] == pytest.approx(math.exp(found["eval_loss"]))
    targets = [int(row["targets"]) for row in worst]
    mean = sum(float(row["loss"]) * count for row, count in zip(worst, targets, strict=True)) / sum(targets)
    assert len(worst) == 10 and mean == pytest.approx(found["eval_loss"], abs=1e-4)
    assert all(row["completion"] == rows[int(row["row"])]["completion"] for row in worst)
    assert main(["evaluate", out, file, "--use_cpu", "--predict_with_generate", "--generation_max_length", "3"]) == 0
    generated = results(f"{out}/evaluation")["metrics"]
    assert {"eval_exact_match", "eval_chrf", "eval_loss"} <= set(generated)
    assert generated["eval_loss"] == pytest.approx(found["eval_loss"], abs=1e-6)
    assert "texts/eval-" in capfd.readouterr().out


def test_blocks_of_text(tmp_path: Path) -> None:
    rows = [{"text": f"w{5 + i} w{6 + i} w{7 + i}"} for i in range(20)]
    model = tiny.llama(max_position_embeddings=64)
    out, file = trained(tmp_path, "causal-lm", model, rows, "--max_seq_length", "16")
    assert main(["evaluate", out, file, "--use_cpu", "--metrics", "token_accuracy"]) == 0
    found = results(f"{out}/evaluation")["metrics"]
    same_numbers(found, out)
    assert 0 <= found["eval_token_accuracy"] <= 1
    worst = table(Path(out) / "evaluation" / "worst_rows.csv")
    assert len(worst) == 5 and all(row["text"].startswith("w") for row in worst)


def test_masked_tokens(tmp_path: Path) -> None:
    rows = [{"text": " ".join(f"w{5 + i + j}" for j in range(6))} for i in range(20)]
    out, file = trained(tmp_path, "masked-lm", tiny.bert("MaskedLM"), rows)
    assert main(["evaluate", out, file, "--use_cpu"]) == 0
    same_numbers(results(f"{out}/evaluation")["metrics"], out)
