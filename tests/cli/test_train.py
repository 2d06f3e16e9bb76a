"""`burnish train` from the command line to the files it leaves."""

from __future__ import annotations

import csv
import errno
import json
import os
import subprocess
import sys

import pytest

from burnish.cli.main import main


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_train_leaves_model_results_card_and_says_what_it_does(train_words, tmp_path, capfd):
    assert main(train_words) == 0
    out, said = tmp_path / "out", capfd.readouterr()
    for name in ("all_results.json", "train_results.json", "eval_results.json", "model.safetensors", "config.json",
                 "tokenizer.json", "README.md", "run.json"):  # fmt: skip
        assert (out / name).is_file(), name
    settings = read(out / "run.json")
    assert settings["state"] == "finished" and settings["ended"]
    assert settings["settings"]["learning_rate"] == {"value": 0.01, "origin": "flag"}
    assert settings["settings"]["eval_strategy"] == {"value": "epoch", "origin": "validation data"}
    assert settings["settings"]["weight_decay"]["origin"] == "default"
    for fact in ("binary", "32", "negative", "8 (2 epochs of 4)", "0.01", "parameters", "cpu", "burnish predict"):
        assert fact in said.out, fact
    assert "eval_accuracy" in (out / "eval_results.json").read_text()
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "train.csv" in card and "| accuracy |" in card and "pipeline(" in card
    assert "Traceback" not in said.err and "it/s" not in said.err and "MISSING" not in said.out + said.err


def test_the_weights_of_the_end_are_evaluated_once(train_words, tmp_path):
    """The results are those of the evaluation in training that saw the weights which are kept."""
    assert main(train_words) == 0
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    during = [line for line in lines if line["kind"] == "evaluation"]
    assert [line["step"] for line in during] == [4, 8]
    best = max(during, key=lambda line: line["eval_accuracy"])
    results = read(tmp_path / "out" / "eval_results.json")
    assert (results["eval_accuracy"], results["eval_loss"]) == (best["eval_accuracy"], best["eval_loss"])


def test_a_finished_run_is_refused_and_moved_aside_when_asked(train_words, tmp_path, capfd):
    words = [*train_words, "--max_steps", "1"]
    assert main(words) == 0
    before = (tmp_path / "out" / "run.json").read_bytes()
    assert main(words) == 1
    assert "holds this run already" in capfd.readouterr().err
    assert main([*words, "--overwrite_output_dir"]) == 0
    assert (tmp_path / "out.1" / "run.json").read_bytes() == before
    assert read(tmp_path / "out" / "run.json")["state"] == "finished"


def test_an_interrupted_run_goes_on_by_the_same_command(train_words, tmp_path, capfd):
    straight = [word if word != str(tmp_path / "out") else str(tmp_path / "straight") for word in train_words]
    assert main([*straight, "--save_strategy", "steps", "--save_steps", "3"]) == 0
    words = [*train_words, "--save_strategy", "steps", "--save_steps", "3"]
    script = (
        "import sys; from burnish.cli.main import main; from burnish.trainer import Trainer\n"
        "from burnish.core.events import TrainerCallback\n"
        "class Stop(TrainerCallback):\n"
        "    def on_step_end(self, args, state, control, **k):\n"
        "        if state.global_step == 4: raise KeyboardInterrupt\n"
        "original = Trainer.__init__\n"
        "def init(self, *a, **k): original(self, *a, **{**k, 'callbacks': [Stop()]})\n"
        "Trainer.__init__ = init\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 130, done.stdout + done.stderr
    assert "The same command goes on" in done.stderr
    assert read(tmp_path / "out" / "run.json")["state"] == "stopped"
    capfd.readouterr()

    assert main([*words, "--learning_rate", "3e-3"]) == 1
    refused = capfd.readouterr().err
    assert "another run (interrupted)" in refused and "0.01" in refused and "0.003" in refused

    assert main(words) == 0
    assert "resuming" in capfd.readouterr().out
    resumed, whole = (read(tmp_path / name / "eval_results.json")["eval_loss"] for name in ("out", "straight"))
    assert resumed == whole


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("text,label\n", ["bad.csv", "no rows"]),
        ("text,label\na,x\nb,y,z\n", ["bad.csv", "row 2", "3 fields"]),
        ("text,label\na,x\n,y\n", ["bad.csv", "row 2", "missing"]),
    ],
)
def test_bad_data_are_one_message(train_words, tmp_path, capfd, content, said):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    assert main([*train_words, "--train_file", str(path)]) == 1
    output = capfd.readouterr()
    assert all(fact in output.err for fact in said), output.err
    assert "Traceback" not in output.err
    assert not (tmp_path / "out").exists()


def test_a_missing_column_names_those_that_are_there(train_words, capfd):
    assert main([*train_words, "--text_column", "txt"]) == 1
    said = capfd.readouterr().err
    assert "'txt'" in said and "'text'" in said


@pytest.mark.filterwarnings("default::FutureWarning")
def test_settings_from_a_file_with_flags_over_them(tiny_model, reviews, tmp_path, capfd):
    config = tmp_path / "run.yaml"
    config.write_text(
        f"model_name_or_path: {tiny_model}\ntrain_file: {reviews['train']}\noutput_dir: {tmp_path / 'out'}\n"
        "max_steps: 50\nuse_cpu: true\nlearning_rate: 1e-3\nper_gpu_train_batch_size: 4\n"
    )
    assert main(["train", str(config), "--max_steps", "2"]) == 0
    settings = read(tmp_path / "out" / "run.json")["settings"]
    assert settings["max_steps"] == {"value": 2, "origin": "flag"}
    assert settings["learning_rate"] == {"value": 1e-3, "origin": "file"}
    assert settings["per_device_train_batch_size"]["value"] == 4
    assert settings["eval_strategy"]["value"] == "no"
    assert "per_gpu_train_batch_size" in capfd.readouterr().err


def test_prediction_on_a_test_file(train_words, reviews, tmp_path):
    words = [*train_words, "--max_steps", "2", "--do_train", "--do_predict", "--test_file", str(reviews["validation"])]
    assert main(words) == 0
    with (tmp_path / "out" / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["number"] for row in rows] == [str(i) for i in range(12)]
    assert {row["prediction"] for row in rows} <= {"negative", "positive"}
    assert 0 <= read(tmp_path / "out" / "predict_results.json")["predict_accuracy"] <= 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--num_train_epochs", "0"], "--num_train_epochs 0 takes no step"),
        (["--do_train", "false", "--do_eval", "false"], "Nothing is left to do"),
        (["--text_column", ","], "--text_column ',' names no column. The columns are"),
        (["--text_column", "text", "--label_column", "text"], "'text' is both the text and the label"),
        (["--torch_compile_mode", "quick"], "torch_compile_mode='quick'"),
        (["--eval_strategy", "steps", "--validation_file="], "--eval_strategy steps needs --validation_file"),
        (["--metrics", "accuracy", "--validation_file="], "--metrics needs rows to measure on: --validation_file"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_first_step(train_words, tmp_path, capfd, words, said):
    assert main([*train_words, *words]) in (1, 2)
    error = capfd.readouterr().err
    assert said in error and "bug" not in error
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_a_run_that_is_told_not_to_train_evaluates(train_words, tmp_path, capfd):
    assert main([*train_words, "--do_train", "false"]) == 0
    assert "eval_accuracy" in read(tmp_path / "out" / "eval_results.json")
    assert not (tmp_path / "out" / "train_results.json").exists()


def test_a_full_disk_is_told_with_what_to_do(train_words, monkeypatch, capfd):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out/README.md")

    monkeypatch.setattr("burnish.cli.train.carry_out", full)
    assert main(train_words) == 1
    assert "out/README.md: No space left on device. Make room on the disk" in capfd.readouterr().err
