"""`burnish predict` on files, sentences and the standard input."""

from __future__ import annotations

import csv
import io
import json

import pytest

from burnish.cli.main import main

HEADER = ["number", "text", "label", "prediction", "probability_negative", "probability_positive"]


@pytest.fixture
def trained(train_words, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main([*train_words, "--max_steps", "8"]) == 0
    capfd.readouterr()
    return tmp_path / "out"


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_file_gets_predictions_beside_its_columns(trained, reviews, tmp_path, capfd):
    assert main(["predict", str(trained), str(reviews["validation"])]) == 0
    asked, answered = table(reviews["validation"]), table(tmp_path / "predictions.csv")
    assert list(answered[0]) == HEADER
    for row, answer in zip(asked, answered, strict=True):
        assert {name: answer[name] for name in row} == row
        shares = {label: float(answer[f"probability_{label}"]) for label in ("negative", "positive")}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert answer["prediction"] == max(shares, key=shares.get)
    said = capfd.readouterr().out
    assert "12 rows" in said and "predictions.csv" in said

    jsonl = tmp_path / "rows.jsonl"
    jsonl.write_text("".join(json.dumps({"body": row["text"]}) + "\n" for row in asked))
    output = tmp_path / "answers.jsonl"
    words = ["predict", str(trained), str(jsonl), "--text_column", "body", "--output_file", str(output)]
    assert main(words) == 0
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["prediction"] for line in lines] == [row["prediction"] for row in answered]


def test_sentences_are_answered_on_the_spot(trained, tmp_path, capfd, monkeypatch):
    assert main(["predict", str(trained), "--text", "w5 good", "--text", "w6 bad"]) == 0
    said = capfd.readouterr().out
    assert "w5 good" in said and "w6 bad" in said
    assert not (tmp_path / "predictions.csv").exists()
    monkeypatch.setattr("sys.stdin", io.StringIO("w5 good\n\nw6 bad\n"))
    assert main(["predict", str(trained), "-"]) == 0
    assert capfd.readouterr().out == said


def test_what_cannot_be_answered_is_one_message(trained, reviews, tmp_path, capfd):
    empty, other = tmp_path / "empty.csv", tmp_path / "other.csv"
    empty.write_text("")
    other.write_text("words,n\na b,1\n")
    for words, code, facts in (
        ([str(trained), str(empty)], 1, ["empty.csv", "empty"]),
        ([str(trained), str(other)], 1, ["other.csv", "'text'", "'words'"]),
        ([str(trained), str(other), "--text_column", "word"], 1, ["'word'", "'words'"]),
        (
            [str(trained), str(reviews["train"]), "--output_file", str(reviews["train"])],
            2,
            ["is the file that is read"],
        ),
        ([str(trained), str(reviews["train"]), "--output_file", "a.xls"], 1, [".csv"]),
        ([str(trained)], 2, ["--text"]),
        ([str(tmp_path), str(reviews["train"])], 1, ["not a model"]),
        ([str(tmp_path / "ouz"), str(reviews["train"])], 1, ["no folder", "out"]),
    ):
        assert main(["predict", *words]) == code, words
        said = capfd.readouterr().err
        assert all(fact in said for fact in facts), said
        assert "Traceback" not in said


def test_untrained_answers_are_not_given(trained, reviews, capfd):
    asked = ["predict", str(trained), str(reviews["validation"]), "--task", "masked-lm"]
    assert main(asked) == 2
    assert "was not trained as a BertForMaskedLM" in capfd.readouterr().err


def test_a_number_of_rows_and_a_config_that_make_no_sense(trained, reviews, capfd):
    for number in ("0", "-1"):
        assert main(["predict", str(trained), str(reviews["validation"]), "--max_predict_samples", number]) == 2
        assert f"--max_predict_samples {number}: set it to 1 or more" in capfd.readouterr().err
    (trained / "config.json").write_text("{")
    assert main(["predict", str(trained), str(reviews["validation"])]) == 2
    assert f"{trained / 'config.json'} is damaged" in capfd.readouterr().err
