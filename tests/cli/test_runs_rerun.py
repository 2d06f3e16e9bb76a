"""`burnish runs rerun`: the same command with the same settings, into a new folder."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from burnish.checkpoint.run_manifest import RunManifest
from burnish.cli.main import main
from burnish.cli.runs.rerun import changes_since, words_again


def manifest(folder: Path) -> RunManifest:
    found = RunManifest.read(folder)
    assert found is not None
    return found


def test_a_run_comes_again_in_a_new_folder_with_what_was_changed(train_words, tmp_path, monkeypatch, capfd) -> None:
    """Also from another folder, and with the settings that came from a file."""
    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text("weight_decay: 0.125\nlabel_smoothing_factor: 0.25\n")
    words = [word.removeprefix(f"{tmp_path}/") for word in train_words]
    assert main([words[0], "run.yaml", *words[1:], "--max_steps", "2", "--hub_token", "sesame", "--debug",
                 "--metrics", "mcc", "accuracy"]) == 0  # fmt: skip
    Path("run.yaml").unlink()
    first = manifest(tmp_path / "out")
    assert first.task == "text-classification" and first.folder == str(tmp_path)
    assert "sesame" not in (tmp_path / "out" / "run.json").read_text()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    capfd.readouterr()
    assert main(["runs", "rerun", str(tmp_path / "out"), "--learning_rate", "3e-3", "--weight_decay=0"]) == 0
    said = capfd.readouterr()
    assert "warning" not in said.err
    again = manifest(tmp_path / "out-rerun")
    values = {name: setting["value"] for name, setting in again.settings.items()}
    changed = {name for name, setting in first.settings.items() if setting["value"] != values[name]}
    assert changed == {"learning_rate", "weight_decay", "output_dir", "train_file", "validation_file"}
    assert values["metrics"] == ["mcc", "accuracy"] and "eval_mcc" in again.result["metrics"]
    assert (values["learning_rate"], values["weight_decay"], values["label_smoothing_factor"]) == (3e-3, 0.0, 0.25)
    assert again.data["train_file"] == first.data["train_file"]
    assert again.model["fingerprint"] == first.model["fingerprint"]
    assert again.command == said.out.splitlines()[0]


def kept(folder: Path, **changes: object) -> RunManifest:
    found = RunManifest(task="fill-mask", command="burnish train", folder=str(folder), **changes)  # type: ignore[arg-type]
    found.write(folder)
    return found


def test_the_words(tmp_path: Path) -> None:
    values = {"gradient_checkpointing_kwargs": {"a": 1}, "report_to": ["x", "y"], "use_cpu": True, "label_column": "-l"}
    settings = {name: {"value": value, "origin": "flag"} for name, value in values.items()}
    settings |= {
        "seed": {"value": 7, "origin": "file"},
        "do_eval": {"value": True, "origin": "derived"},
        "eval_steps": {"value": None, "origin": "flag"},
        "resume_from_checkpoint": {"value": "auto", "origin": "flag"},
    }
    run = kept(tmp_path / "a", settings=settings)
    (tmp_path / "a-rerun").mkdir()
    assert words_again(run, ["--no_use_cpu", "--seed=8"], tmp_path / "a") == [
        *("--task", "fill-mask", "--gradient_checkpointing_kwargs", '{"a": 1}', "--report_to", '["x", "y"]'),
        *("--label_column=-l", "--output_dir", str(tmp_path / "a-rerun-2"), "--no_use_cpu", "--seed=8"),
    ]
    assert words_again(run, ["--output_dir", "new", "--task", "x"], tmp_path / "a")[-4:] == [
        *("--output_dir", "new", "--task", "x")
    ]


def test_paths_are_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, now = tmp_path / "before", tmp_path / "now"
    now.mkdir()
    files = {"deepspeed": "ds.json", "fsdp_config": "fsdp.json", "generation_config": "beams", "cache_dir": "cache"}
    for name in files.values():
        (before / name).mkdir(parents=True)
    values = {**files, "tokenizer_name": "someone/tokens", "train_file": "rows-*.csv"}
    settings = {name: {"value": value, "origin": "flag"} for name, value in values.items()}
    run = kept(before, settings=settings)
    monkeypatch.chdir(now)
    words = words_again(run, ["--output_dir", "new"], before)
    given = dict(zip(words[2:-2:2], words[3:-2:2], strict=True))
    found = {f"--{name}": str(before / path) for name, path in {**files, "train_file": "rows-*.csv"}.items()}
    assert given == {**found, "--tokenizer_name": "someone/tokens"}
    monkeypatch.chdir(before)
    assert "--deepspeed ds.json" in " ".join(words_again(run, [], before))


@pytest.mark.parametrize("given", ['{"zero_optimization": {"stage": 2}}', {"zero_optimization": {"stage": 2}}])
def test_a_configuration_that_is_no_file_stays_as_it_was(given: object, tmp_path: Path) -> None:
    run = kept(tmp_path, settings={"deepspeed": {"value": given, "origin": "flag"}})
    assert '{"zero_optimization": {"stage": 2}}' in words_again(run, [], tmp_path / "a")


def test_what_is_not_as_it_was_is_told(tmp_path: Path) -> None:
    from burnish.checkpoint.manifest import versions
    from burnish.cli.fingerprints import fingerprint

    for name in ("train.csv", "validation.csv"):
        (tmp_path / name).write_text("text,label")
    files = {f"{name}_file": fingerprint(tmp_path / f"{name}.csv") for name in ("train", "validation")}
    run = kept(tmp_path / "a", data=files, versions=versions())
    assert changes_since(run) == []
    (tmp_path / "train.csv").write_text("text,label\n")
    (tmp_path / "validation.csv").unlink()
    run.versions = {**run.versions, "torch": "1.0", "gone": "2.0"}
    told = "\n".join(changes_since(run))
    assert "train.csv has another content" in told and "validation.csv is not there any more" in told
    assert "torch 1.0, now" in told and "gone 2.0, now not installed" in told and "numpy" not in told


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_another_commit_is_told(tmp_path: Path) -> None:
    from burnish.tracking.surroundings import git_state

    def git(*words: str) -> None:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "-m", "one")
    run = kept(tmp_path / "a", git=git_state(tmp_path))
    assert changes_since(run) == []
    git("commit", "--allow-empty", "-m", "two")
    (told,) = changes_since(run)
    assert "was at commit" in told and str(run.git and run.git["commit"])[:10] in told


def test_a_run_of_a_script_is_told_how_to_start_it(tmp_path: Path, capfd) -> None:
    run = kept(tmp_path / "a", script="/x/train.py")
    run.task, run.command = None, "python train.py --lr 1"
    run.write(tmp_path / "a")
    assert main(["runs", "rerun", str(tmp_path / "a")]) == 1
    said = capfd.readouterr().out
    assert "/x/train.py" in said and f"cd {tmp_path / 'a'} && python train.py --lr 1" in said


def test_what_cannot_be_run_again_is_refused(tmp_path: Path, capfd) -> None:
    assert main(["runs", "rerun"]) == 2
    assert main(["runs", "rerun", str(tmp_path)]) == 1
    assert "has no run.json" in capfd.readouterr().err
    (tmp_path / "run.json").write_text(json.dumps([1]))
    assert main(["runs", "rerun", str(tmp_path / "run.json")]) == 1
