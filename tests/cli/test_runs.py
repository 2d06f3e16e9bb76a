"""`burnish runs`: the list, `verify` and `diff`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from checkpoint import snapshots

from burnish.checkpoint.process import this_process
from burnish.checkpoint.run_manifest import RunManifest
from burnish.checkpoint.verify import problem_with
from burnish.cli.main import main
from burnish.cli.runs import found as runs_found
from burnish.cli.runs.command import listing
from burnish.cli.runs.found import Traces, find_runs
from burnish.cli.runs.table import fitted, size


def run(place: Path, state: str = "finished", *steps: int, when: int = 0, **changes: Any) -> RunManifest:
    """A run of 9 steps with checkpoints at these."""
    settings = {"learning_rate": {"value": 1e-4, "origin": "default"}, **changes.pop("settings", {})}
    found = RunManifest(run_id=place.name, state=state, max_steps=9, settings=settings, **changes)
    found.write(place)
    snapshots.write(place, *steps, run_id=place.name)
    for path in (place, place / "run.json", *(place / f"checkpoint-{step}" for step in steps)):
        os.utime(path, (when, when))
    return found


def theirs(folder: Path, step: int) -> Path:
    """A checkpoint of transformers, of a run of 9 steps with its best evaluation at step 3."""
    checkpoint = snapshots.without_manifest(snapshots.write(folder, step)[0])
    history = [{"step": 3, "eval_loss": 0.5, "eval_f1": 0.25}, {"step": 6, "eval_loss": 0.7, "eval_f1": 0.2}]
    best = {"best_metric": 0.25, "best_global_step": 3}
    state = {"global_step": step, "max_steps": 9, "log_history": history, **best}
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    return checkpoint


def found(top: Path) -> dict[str, Any]:
    return {str(one.folder.relative_to(top)): one for one in find_runs(top)}


# ---------------------------------------------------------------- the list


def test_states(tmp_path: Path) -> None:
    gone = {**this_process(), "began": -1}
    run(tmp_path / "done")
    run(tmp_path / "at work", "running", 3, process=this_process())
    run(tmp_path / "killed", "running", 3, 6, process=gone)
    run(tmp_path / "far", "running", 3, process={**gone, "host": "elsewhere"})
    run(tmp_path / "failed", "failed", 3, reason="ValueError: no")
    run(tmp_path / "stopped", "stopped")
    theirs(tmp_path / "theirs", 6)
    theirs(tmp_path / "their end", 9)
    run(tmp_path / "bad", "finished", 3)
    (tmp_path / "bad" / "run.json").write_text("{")
    runs = found(tmp_path)
    assert {name: (one.state, one.resume_from) for name, one in runs.items()} == {
        "done": ("finished", None),
        "at work": ("running", None),
        "killed": ("killed", "checkpoint-6"),
        "far": ("unknown", "checkpoint-3"),
        "failed": ("failed", "checkpoint-3"),
        "stopped": ("stopped", None),
        "theirs": ("unfinished", "checkpoint-6"),
        "their end": ("finished", None),
        "bad": ("damaged", "checkpoint-3"),
    }
    assert {one.by for name, one in runs.items() if name.startswith("their")} == {"transformers"}


def test_steps_and_best_come_from_what_is_known(tmp_path: Path) -> None:
    run(tmp_path / "ended", result={"step": 9, "best": {"metric": "eval_f1", "value": 0.5, "step": 6}})
    run(tmp_path / "killed", "running", 3, process={**this_process(), "began": -1})
    log = [{"step": 2, "loss": 1}, {"step": 4, "eval_loss": 0.25}, {"step": 5, "loss": 1}]
    (tmp_path / "killed" / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log) + '{"step": 6')
    theirs(tmp_path / "theirs", 6)
    runs = found(tmp_path)
    assert {name: (one.step, one.max_steps) for name, one in runs.items()} == {
        "ended": (9, 9), "killed": (5, 9), "theirs": (6, 9)
    }  # fmt: skip
    assert runs["ended"].best == {"metric": "eval_f1", "value": 0.5, "step": 6}
    assert runs["killed"].best == {"metric": "eval_loss", "value": 0.25, "step": 4}
    assert runs["theirs"].best == {"metric": "eval_f1", "value": 0.25, "step": 3}


def test_only_whole_checkpoints_of_the_run_are_gone_on_from(tmp_path: Path) -> None:
    run(tmp_path / "a", "failed", 3, 6)
    (tmp_path / "a" / "checkpoint-6" / "optimizer.pt").write_text("cut")
    snapshots.write(tmp_path / "a", 9, run_id="another run")
    (one,) = find_runs(tmp_path)
    assert one.resume_from == "checkpoint-3"
    assert list(one.torn) == ["checkpoint-6"] and "optimizer.pt has 3 bytes" in one.torn["checkpoint-6"]


def test_what_a_running_job_deletes_meanwhile_is_not_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "a", "running", 3, 6, process=this_process())

    def late(checkpoint: Path, checksums: bool = True) -> str | None:
        if checkpoint.name == "checkpoint-3" and checkpoint.exists():
            shutil.rmtree(checkpoint)
        return problem_with(checkpoint, checksums=checksums)

    monkeypatch.setattr(runs_found, "problem_with", late)
    (one,) = find_runs(tmp_path)
    assert (one.torn, one.step) == ({}, 6)


def test_a_file_that_goes_while_it_is_looked_at_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "a", "finished", 3, when=5)
    stat = Path.stat

    def late(path: Path, **options: Any) -> os.stat_result:
        if path.name == "log.jsonl":
            raise FileNotFoundError(path)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", late)
    monkeypatch.setattr(Path, "exists", lambda path: True)
    assert Traces(tmp_path / "a", None).last_active == 5


def test_a_checkpoint_of_no_step_is_no_run(tmp_path: Path) -> None:
    run(tmp_path / "a", "failed", 0)
    (tmp_path / "a" / "checkpoint-0" / "run.json").write_text("{}")
    assert list(found(tmp_path)) == ["a"]


def test_the_list_is_by_time_and_knows_sizes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "old", when=1_000_000_000)
    run(tmp_path / "sweep" / "new", "failed", 3, when=1_700_000_000, reason="ValueError: no such label")
    run(tmp_path / "sweep" / "new" / "inner", when=1_500_000_000)
    (tmp_path / ".hidden").mkdir()
    run(tmp_path / ".hidden" / "x")
    (tmp_path / "old" / "weights").write_bytes(b"x" * 5000)
    runs = find_runs(tmp_path)
    assert [str(one.folder.relative_to(tmp_path)) for one in runs] == ["sweep/new", "sweep/new/inner", "old"]
    whole = sum(path.stat().st_size for path in (tmp_path / "sweep" / "new").rglob("*") if path.is_file())
    assert runs[0].num_bytes + runs[1].num_bytes == whole
    assert main(["runs", str(tmp_path)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].split() == ["run", "state", "step", "best", "size", "when", "resume"]
    assert lines[1].startswith("sweep/new ") and lines[1].endswith("checkpoint-3") and "kB" in lines[3]
    assert lines[-1] == "sweep/new: failed: ValueError: no such label"


def test_as_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "a", "stopped", 3, reason="SIGTERM")
    assert main(["runs", str(tmp_path), "--json"]) == 0
    (one,) = json.loads(capfd.readouterr().out)
    assert (one["state"], one["reason"], one["step"], one["resume_from"]) == ("stopped", "SIGTERM", 3, "checkpoint-3")
    assert one["bytes"] > 1000 and one["torn"] == {} and one["run_id"] == "a"


def test_no_runs_and_no_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path)]) == 0
    assert "no runs" in capfd.readouterr().out
    assert main(["runs", str(tmp_path / "nowhere")]) == 1
    assert main(["runs", str(tmp_path), "other"]) == 2
    capfd.readouterr()
    assert main(["runs", "verfy"]) == 2 and "'verify'" in capfd.readouterr().err
    assert main(["runs", "dif", "a", "b"]) == 2 and "'diff'" in capfd.readouterr().err
    assert main(["runs", "--sort"]) == 2


def test_help_tells_all_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["runs", "--help"], ["runs", "verify", "-h"]):
        assert main(words) == 0
        said = capfd.readouterr().out
        assert all(word in said for word in ("verify", "diff", "rerun", "--json", "killed", "Exit code 1"))
        assert max(map(len, said.splitlines())) <= 100


@pytest.mark.parametrize("width", [200, 100, 80, 60, 45])
def test_the_table_fits_the_terminal(width: int, tmp_path: Path) -> None:
    run(tmp_path / ("a" * 70), "failed", 3, reason="ValueError: " + "x" * 300)
    theirs(tmp_path / "theirs", 6)
    lines = listing(find_runs(tmp_path), tmp_path, width)
    assert max(map(len, lines)) <= width
    assert "checkpoint-3" in lines[1] + lines[2]


def test_what_a_narrow_table_goes_without() -> None:
    rows = [["a" * 40, "b" * 40, "c"]]
    assert fitted(["x", "y", "z"], rows, None)[1] == "  ".join(rows[0])
    assert fitted(["x", "y", "z"], rows, 40, ["y"])[0].split() == ["x", "y", "z"]
    assert fitted(["x", "y", "z"], rows, 20, ["y"])[0].split() == ["x", "z"]
    assert [size(number) for number in (999, 1500, 25_000, 3e12)] == ["999 B", "1.5 kB", "25 kB", "3.0 TB"]


# ---------------------------------------------------------------- verify


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_every_damaged_file_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "a", "finished", 3, 6)
    assert main(["runs", "verify", str(tmp_path / "a")]) == 0
    assert "2 looked at: all good" in capfd.readouterr().out
    flip(tmp_path / "a" / "checkpoint-6" / "model.safetensors")
    (tmp_path / "a" / "checkpoint-6" / "optimizer.pt").unlink()
    (tmp_path / "a" / "checkpoint-6" / "notes.txt").write_text("")
    assert main(["runs", "verify", str(tmp_path / "a")]) == 1
    said = capfd.readouterr().out
    assert "checkpoint-3  good" in said and "checkpoint-6  damaged" in said
    assert "model.safetensors  does not hold what was written" in said and "optimizer.pt       is missing" in said
    assert "notes.txt" in said and "1 damaged" in said
    assert main(["runs", "verify", str(tmp_path / "a" / "checkpoint-3")]) == 0


def test_a_damaged_manifest_and_those_without(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "a", "finished", 3)
    flip(tmp_path / "a" / "checkpoint-3" / "manifest.json")
    theirs(tmp_path / "b", 6)
    assert main(["runs", "verify", str(tmp_path), "--json"]) == 1
    told = {Path(one["folder"]).name: one for one in json.loads(capfd.readouterr().out)}
    assert not told["checkpoint-3"]["good"] and "manifest.json" in told["checkpoint-3"]["problems"]
    assert told["checkpoint-6"]["good"] and "without a manifest" in told["checkpoint-6"]["checked"]
    path = tmp_path / "b" / "checkpoint-6" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    assert main(["runs", "verify", str(tmp_path / "b")]) == 1


def test_the_final_model_is_looked_at(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "a", "finished", 3)
    weights = (tmp_path / "a" / "checkpoint-3" / "model.safetensors").read_bytes()
    (tmp_path / "a" / "model.safetensors").write_bytes(weights)
    assert main(["runs", "verify", str(tmp_path / "a")]) == 0
    (tmp_path / "a" / "model.safetensors").write_bytes(weights[:100])
    assert main(["runs", "verify", str(tmp_path / "a")]) == 1
    assert "model.safetensors  is damaged" in capfd.readouterr().out


def test_what_cannot_be_verified_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "verify"]) == 2
    assert main(["runs", "verify", str(tmp_path / "nowhere")]) == 1
    assert main(["runs", "verify", str(tmp_path)]) == 1
    assert "no run is in it" in capfd.readouterr().err


# ---------------------------------------------------------------- diff


def file(content: str, path: str = "/data/train.csv") -> dict[str, Any]:
    return {"path": path, "bytes": 10, "sha256": content * 64}


def test_what_differs_is_shown_with_its_origin(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rate = {"learning_rate": {"value": 3e-5, "origin": "flag"}, "seed": {"value": 1, "origin": "file"}}
    output = {"output_dir": {"value": "x", "origin": "flag"}}
    one = {"versions": {"torch": "2.1", "numpy": "2.0"}, "data": {"train_file": file("a")}, "task": "fill-mask"}
    two = {"versions": {"torch": "2.2", "numpy": "2.0"}, "data": {"train_file": file("b")}, "task": "fill-mask"}
    went = {"step": 9, "epoch": 3.0, "seconds": 3.0, "metrics": {"eval_f1": 0.5, "epoch": 1.0}}
    run(tmp_path / "a", settings=output, result=went, **one)
    run(tmp_path / "b", "failed", settings=rate, result={"step": 4, "metrics": {"eval_loss": 2.0}}, **two)
    assert main(["runs", "diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    said = capfd.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert ["learning_rate", "0.0001", "3e-05", "default", "/", "flag"] in lines
    assert ["seed", "-", "1", "-", "/", "file"] in lines
    assert ["torch", "2.1", "2.2"] in lines and "numpy" not in said
    assert ["eval_f1", "0.5000", "-"] in lines and ["eval_loss", "-", "2.0000"] in lines
    assert ["state", "finished", "failed"] in lines and ["seconds", "3.0", "-"] in lines
    assert ["epoch", "3", "-"] in lines  # of the end, not of the best evaluation
    assert any(line[:1] == ["train_file"] for line in lines)
    assert "output_dir" not in said and "task" not in said


def test_a_file_that_moved_and_a_model_named_from_elsewhere_are_the_same(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model").mkdir()
    for name, path, model in (("a", "/one/train.csv", "model"), ("b", "/two/train.csv", str(tmp_path / "model"))):
        engine = json.dumps({"zero_optimization": dict.fromkeys(map(str, range(99)), 2)})  # longer than a name may be
        values = {"train_file": path, "model_name_or_path": model, "deepspeed": engine}
        settings = {key: {"value": value, "origin": "flag"} for key, value in values.items()}
        known = {"data": {"train_file": file("a", path)}, "model": {"name_or_path": model}}
        run(tmp_path / name, settings=settings, folder=str(tmp_path), **known)
    assert main(["runs", "diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["settings"] == told["data"] == told["model"] == {}
    assert told["results"]["state"] == ["finished", "finished"]


def test_a_run_of_transformers_is_compared_as_far_as_it_is_known(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "a", result={"step": 9})
    theirs(tmp_path / "b", 6)
    assert main(["runs", "diff", str(tmp_path / "a"), str(tmp_path / "b" / "checkpoint-6")]) == 0
    said = capfd.readouterr().out
    assert "b has no run.json" in said and "unfinished" in said
    assert main(["runs", "diff", str(tmp_path / "a"), str(tmp_path)]) == 1
    assert main(["runs", "diff", str(tmp_path / "a")]) == 2
