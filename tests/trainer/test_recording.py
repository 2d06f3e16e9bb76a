"""`run.json` of a plain `Trainer`: written when a run begins, completed when it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from trainer import runs

import burnish
from burnish.checkpoint.process import is_alive
from burnish.checkpoint.run_manifest import RunManifest


class At(burnish.TrainerCallback):
    """Does something at the end of a step."""

    def __init__(self, step: int, act: Any) -> None:
        self.step, self.act = step, act

    def on_step_end(self, args: Any, state: Any, control: Any, **details: Any) -> None:
        if state.global_step == self.step:
            self.act(control)


def trainer(folder: Path, *callbacks: Any, **settings: Any) -> Any:
    usual = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    parts = {"eval_dataset": tiny.class_rows(7), "callbacks": list(callbacks)}
    return runs.trainer(folder, parts=parts, **{**usual, **settings})


def manifest(folder: Path) -> RunManifest:
    found = RunManifest.read(folder)
    assert found is not None
    return found


def raises(error: BaseException) -> Any:
    def act(control: Any) -> None:
        raise error

    return act


def test_it_is_there_while_the_run_is_at_work(tmp_path: Path) -> None:
    seen: list[RunManifest] = []
    trainer(tmp_path, At(1, lambda control: seen.append(manifest(tmp_path)))).train()
    (run,) = seen
    assert run.state == "running" and run.ended is None and run.result == {}
    assert is_alive(run.process)
    assert run.max_steps == 4


def test_a_finished_run_tells_what_it_was_and_how_it_went(tmp_path: Path) -> None:
    run = trainer(tmp_path, hub_token="hf_" + "x" * 20)
    run.train()
    found = manifest(tmp_path)
    assert found.finished and found.reason is None and found.task is None
    assert found.settings["learning_rate"] == {"value": 1e-3, "origin": "argument"}
    assert found.settings["weight_decay"] == {"value": 0.0, "origin": "default"}
    assert found.settings["do_eval"]["origin"] == "derived"
    assert {"python", "burnish", "torch", "transformers", "accelerate", "datasets"} <= found.versions.keys()
    assert found.hardware["device"] == "cpu" and found.hardware["cores"] >= 1
    assert found.data["train_dataset"]["rows"] == 18 and len(found.data["train_dataset"]["fingerprint"]) == 12
    assert found.data["eval_dataset"] == {"rows": 7}
    assert found.model["class"] == "BertForSequenceClassification"
    assert found.model["parameters"] == sum(part.numel() for part in run.model.parameters())
    losses = {entry["step"]: entry["eval_loss"] for entry in run.state.log_history if "eval_loss" in entry}
    assert found.result["step"] == 4 and found.result["metrics"]["eval_loss"] == losses[4]
    assert found.result["best"]["value"] == min(losses.values())
    assert found.run_id == json.loads((tmp_path / "checkpoint-4" / "manifest.json").read_text())["run_id"]
    assert "hf_xxx" not in (tmp_path / "run.json").read_text()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (KeyboardInterrupt(), "stopped", "SIGINT (Ctrl-C)"),
        (SystemExit(143), "stopped", "SIGTERM"),
        (SystemExit(3), "stopped", "exit code 3"),
        (RuntimeError("no luck at\nhttps://me:sesame@host"), "failed", "RuntimeError: no luck at https://<LOGIN>@host"),
    ],
    ids=["ctrl-c", "sigterm", "exit", "error"],
)
def test_a_run_that_ended_otherwise_says_why(error: BaseException, state: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(type(error)):
        trainer(tmp_path, At(3, raises(error))).train()
    found = manifest(tmp_path)
    assert found.state == state and (found.reason or "").startswith(reason)
    assert found.ended and found.result["step"] == 3


def test_a_callback_that_ends_a_run_finishes_it_and_is_told(tmp_path: Path) -> None:
    def stop(control: Any) -> None:
        control.should_training_stop = True

    trainer(tmp_path, At(3, stop)).train()
    found = manifest(tmp_path)
    assert found.state == "finished" and "step 3 of 4" in (found.reason or "")


def test_a_run_whose_time_is_up_has_stopped(tmp_path: Path) -> None:
    class OutOfTime(burnish.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **details: Any) -> None:
            if state.global_step == 2:
                state.stop_reason, control.should_training_stop = "max_time", True

    trainer(tmp_path, OutOfTime()).train()
    assert (manifest(tmp_path).state, manifest(tmp_path).reason) == ("stopped", "max_time")


def test_a_run_that_goes_on_keeps_its_begin(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path, At(3, raises(KeyboardInterrupt()))).train()
    before = manifest(tmp_path)
    trainer(tmp_path).train(resume_from_checkpoint="auto")
    after = manifest(tmp_path)
    assert after.run_id == before.run_id and after.started == before.started and after.model == before.model
    assert [part["step"] for part in after.resumed] == [3]
    assert after.state == "finished" and after.reason is None
    assert after.result["seconds"] > before.result["seconds"]


def test_a_second_training_in_the_folder_is_another_run(tmp_path: Path) -> None:
    run = trainer(tmp_path)
    run.train()
    before = manifest(tmp_path)
    run.train()
    after = manifest(tmp_path)
    assert after.run_id != before.run_id and after.resumed == []
    assert after.model["fingerprint"] != before.model["fingerprint"]  # it began with the weights that the first left


def test_a_run_that_is_refused_leaves_the_manifest_that_was_there(tmp_path: Path) -> None:
    trainer(tmp_path).train()
    before = (tmp_path / "run.json").read_bytes()
    rows = [{**row, "labels": 9} for row in tiny.class_rows(8)]
    with pytest.raises(ValueError, match="label"):
        runs.trainer(tmp_path, parts={"train_dataset": rows}).train()
    assert (tmp_path / "run.json").read_bytes() == before


def test_an_end_that_cannot_be_written_down_is_told_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Any, folder: Any) -> None:
        if self.ended:
            raise OSError(28, "No space left on device")
        plain(self, folder)

    plain = RunManifest.write
    monkeypatch.setattr(RunManifest, "write", full)
    trainer(tmp_path).train()
    assert "could not be written" in caplog.text and "No space left" in caplog.text


def test_saving_a_model_writes_a_card_with_its_results(tmp_path: Path) -> None:
    run = trainer(tmp_path)
    run.train()
    run.save_model(str(tmp_path / "model"))
    card = (tmp_path / "model" / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card and "| loss |" in card
    assert 'BertForSequenceClassification.from_pretrained("model")' in card
    (tmp_path / "model" / "README.md").write_text("mine")
    run.save_model(str(tmp_path / "model"))
    assert (tmp_path / "model" / "README.md").read_text() == "mine"
