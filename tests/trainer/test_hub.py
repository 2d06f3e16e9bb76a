"""What a trainer uploads, and when, against a hub on this machine."""

from __future__ import annotations

import concurrent.futures.thread
import errno
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import transformers
from hub_server import TOKEN, Hub, Repo, local_hub
from trainer import runs

import burnish
from burnish.checkpoint import files, find, layout, verify
from burnish.core.errors import CheckpointError, HubError

NAME = "me/mine"
MODEL = {
    "README.md",
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "training_args.json",
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with local_hub(monkeypatch) as found:
        yield found


class At(burnish.TrainerCallback):
    """Does something once a step is done."""

    def __init__(self, step: int, does: Callable[[], Any]) -> None:
        self.step, self.does = step, does

    def on_step_end(self, args: Any, state: Any, control: Any, **details: Any) -> None:
        if state.global_step == self.step:
            self.does()


class Told(burnish.TrainerCallback):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_push_begin(self, args: Any, state: Any, control: Any, **details: Any) -> None:
        self.steps.append(state.global_step)


def trainer(folder: Path, *callbacks: Any, **settings: Any) -> Any:
    """A run of 6 steps that saves at 2, 4 and 6."""
    usual = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "push_to_hub": True, "hub_model_id": "mine"}
    parts = {"processing_class": tiny.tokenizer(), "callbacks": list(callbacks)}
    return runs.trainer(folder, parts=parts, **{**usual, **settings})


def waiting(run: Any) -> list[At]:
    """Callbacks that wait after a save until it is uploaded."""
    return [At(step + 1, lambda: run[0].uploads.queue.wait()) for step in (2, 4)]


def uploading_each(folder: Path, **settings: Any) -> Any:
    """A run in which no upload meets the next."""
    held: list[Any] = []
    held.append(trainer(folder, *waiting(held), **settings))
    return held[0]


def on_disk(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def of_model(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in MODEL}


def uploaded(hub: Hub, branch: str = "main") -> dict[str, bytes]:
    return {name: content for name, content in hub.files(NAME, branch).items() if name != ".gitattributes"}


# ---------------------------------------------------------------- strategies


def test_end_uploads_the_final_model_alone(hub: Hub, tmp_path: Path) -> None:
    told = Told()
    run = trainer(tmp_path, told, hub_strategy="end")
    run.train()
    assert hub.messages(NAME) == ["End of training"] and told.steps == [6]
    assert uploaded(hub) == of_model(tmp_path)
    assert run.hub_model_id == NAME


def test_every_save_uploads_the_model_of_each(hub: Hub, tmp_path: Path) -> None:
    seen: list[bytes] = []
    hub.at_commit = lambda: seen.append(max(hub.blobs.values(), key=lambda blob: hub.uploaded.index(_sha(blob))))
    run = uploading_each(tmp_path, hub_strategy="every_save")
    run.train()
    assert hub.messages(NAME)[:3] == [f"Training in progress, step {step}" for step in (2, 4, 6)]
    assert [len(seen), set(uploaded(hub))] == [len(hub.messages(NAME)), MODEL]
    for step, weights in zip((2, 4, 6), seen, strict=False):
        assert weights == (tmp_path / f"checkpoint-{step}" / "model.safetensors").read_bytes()
    assert uploaded(hub) == of_model(tmp_path)
    assert not run.uploads.queue.names


def _sha(blob: bytes) -> str:
    import hashlib

    return hashlib.sha256(blob).hexdigest()


@pytest.mark.parametrize("total", [None, 1])
def test_checkpoint_uploads_what_a_run_goes_on_from(hub: Hub, tmp_path: Path, total: int | None) -> None:
    first = tmp_path / "first"
    uploading_each(first, hub_strategy="checkpoint", save_total_limit=total).train()
    files = hub.files(NAME, below="last-checkpoint/")
    assert files == on_disk(first / "checkpoint-6")
    assert {name for name in uploaded(hub) if "/" not in name} == MODEL
    assert [layout.step_of(path) for path in find.checkpoints(first)] == ([6] if total else [2, 4, 6])


def test_all_checkpoints(hub: Hub, tmp_path: Path) -> None:
    uploading_each(tmp_path, hub_strategy="all_checkpoints").train()
    for step in (2, 4, 6):
        assert hub.files(NAME, below=f"checkpoint-{step}/") == on_disk(tmp_path / f"checkpoint-{step}")


def test_a_run_goes_on_from_what_was_uploaded(hub: Hub, tmp_path: Path) -> None:
    """On another machine: downloaded by the real client."""
    straight = trainer(tmp_path / "straight", push_to_hub=False)
    straight.train()
    trainer(
        tmp_path / "one", max_steps=4, num_train_epochs=9, lr_scheduler_type="constant", hub_strategy="checkpoint"
    ).train()
    from huggingface_hub import snapshot_download

    there = Path(snapshot_download(NAME, local_dir=tmp_path / "two", cache_dir=tmp_path / "cache"))
    assert verify.problem_with(there / "last-checkpoint") is None
    model = transformers.AutoModelForSequenceClassification.from_pretrained(NAME, cache_dir=tmp_path / "cache")
    assert model.config.model_type == "bert"
    again = trainer(tmp_path / "two", lr_scheduler_type="constant", hub_strategy="checkpoint")
    again.train(resume_from_checkpoint=str(there / "last-checkpoint"))
    assert again.state.global_step == 6
    whole = trainer(tmp_path / "whole", push_to_hub=False, lr_scheduler_type="constant")
    whole.train()
    assert runs.difference(whole.model, again.model) == 0.0
    assert hub.messages(NAME)[-1] in ("Training in progress, step 6", "End of training")


def test_a_branch_and_a_private_repository(hub: Hub, tmp_path: Path) -> None:
    trainer(tmp_path, hub_strategy="end", hub_revision="trial", hub_private_repo=True).train()
    assert uploaded(hub, "trial") == of_model(tmp_path) and uploaded(hub) == {}
    assert hub.repos[NAME].private


def test_the_repository_is_called_as_the_folder(hub: Hub, tmp_path: Path) -> None:
    trainer(tmp_path / "out", hub_model_id=None, hub_strategy="end").train()
    assert set(hub.repos) == {"me/out"}


def test_the_best_model_is_what_is_uploaded_last(hub: Hub, tmp_path: Path) -> None:
    run = trainer(
        tmp_path, eval_strategy="steps", eval_steps=2, load_best_model_at_end=True, metric_for_best_model="score",
        greater_is_better=False,
    )  # fmt: skip
    run.eval_dataset = tiny.class_rows(5)
    run.compute_metrics = lambda prediction: {"score": float(run.state.global_step)}
    run.train()
    assert uploaded(hub)["model.safetensors"] == (tmp_path / "checkpoint-2" / "model.safetensors").read_bytes()


# ---------------------------------------------------------------- behind the training


def test_no_step_waits_and_a_newer_checkpoint_takes_the_place(hub: Hub, tmp_path: Path) -> None:
    """The server holds the first upload until the last step is done."""
    done = threading.Event()
    hub.at_commit = lambda: done.wait(20)
    here: list[list[str]] = []
    looks = At(5, lambda: here.append(run.uploads.queue.names))
    run = trainer(tmp_path, looks, At(6, done.set), hub_strategy="checkpoint", save_total_limit=1)
    run.train()
    assert here == [["checkpoint-2", "checkpoint-4"]]
    assert hub.messages(NAME)[:2] == ["Training in progress, step 2", "Training in progress, step 6"]
    assert hub.files(NAME, below="last-checkpoint/") == on_disk(tmp_path / "checkpoint-6")
    assert [path.name for path in find.checkpoints(tmp_path)] == ["checkpoint-6"], "what was read longer is gone, too"


def test_every_checkpoint_where_that_is_asked_for(hub: Hub, tmp_path: Path) -> None:
    done = threading.Event()
    hub.at_commit = lambda: done.wait(20)
    trainer(tmp_path, At(6, done.set), hub_always_push=True, save_total_limit=1).train()
    assert hub.messages(NAME)[:3] == [f"Training in progress, step {step}" for step in (2, 4, 6)]


@pytest.mark.parametrize("strategy", ["every_save", "checkpoint", "all_checkpoints"])
def test_a_failure_is_told_and_made_up_for(
    hub: Hub, tmp_path: Path, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = uploading_each(tmp_path, hub_strategy=strategy)
    hub.fails["/commit/"] = (500, 1, "Internal Error")
    run.train()
    told = [
        record
        for record in caplog.records
        if record.name == "burnish.run.uploads" and record.levelno >= logging.WARNING
    ]
    assert (
        len(told) == 1
        and "checkpoint-2 was not uploaded. The hub did not take it (Internal Error)." in told[0].getMessage()
    )
    assert uploaded(hub).items() >= of_model(tmp_path).items()
    assert "Training in progress, step 4" in hub.messages(NAME)
    if strategy == "all_checkpoints":
        assert hub.files(NAME, below="checkpoint-2/") == on_disk(tmp_path / "checkpoint-2")


def test_the_last_checkpoint_is_tried_twice(hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = uploading_each(tmp_path, hub_strategy="checkpoint")
    run.add_callback(At(6, lambda: hub.fails.update({"/commit/": (503, 1, "Service Unavailable")})))
    run.train()
    assert "checkpoint-6 was not uploaded" in caplog.text
    assert hub.files(NAME, below="last-checkpoint/") == on_disk(tmp_path / "checkpoint-6")


def test_a_final_model_that_does_not_get_there_is_no_error(
    hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = trainer(tmp_path / "out", hub_strategy="end")
    hub.fails["/commit/"] = (500, 1, "Internal Error")
    trained = run.train()
    assert trained.global_step == 6 and transformers.AutoModel.from_pretrained(tmp_path / "out") is not None
    (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert f"hf upload me/mine {tmp_path / 'out'} ." in told and "Internal Error" in told
    assert str(run.uploads.failed) == told
    assert json.loads((tmp_path / "out" / layout.RUN).read_text())["state"] == "finished"
    run.push_to_hub()
    assert run.uploads.failed is None and uploaded(hub) == of_model(tmp_path / "out")


def test_a_server_that_goes_away(hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = trainer(tmp_path, At(1, hub.stop))
    run.train()
    assert run.state.global_step == 6 and "cannot be reached" in str(run.uploads.failed)
    assert "checkpoint-6 was not uploaded" in caplog.text and "hf upload" in caplog.text


# ---------------------------------------------------------------- before the first step


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"hub_token": "hf_" + "w" * 30}, "hf auth login"),
        ({"hub_model_id": "others/model"}, "may not write to others/model"),
    ],
)
def test_no_step_is_taken_where_nothing_could_be_uploaded(
    hub: Hub, tmp_path: Path, settings: dict[str, Any], says: str
) -> None:
    run = trainer(tmp_path, **settings)
    with pytest.raises(HubError, match=says):
        run.train()
    assert run.state.global_step == 0 and find.checkpoints(tmp_path) == []


def test_offline_trains_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = trainer(tmp_path)
    run.train()
    assert "HF_HUB_OFFLINE is set: nothing is uploaded" in caplog.text
    assert f"hf upload mine {tmp_path} ." in caplog.text and (tmp_path / "model.safetensors").is_file()
    with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
        run.push_to_hub()


def test_nothing_is_asked_where_nothing_is_uploaded(hub: Hub, tmp_path: Path) -> None:
    run = trainer(tmp_path, push_to_hub=False)
    run.train()
    run.save_model()
    assert hub.asked == [] and run.hub_model_id is None


# ---------------------------------------------------------------- by hand


def test_push_to_hub(hub: Hub, tmp_path: Path) -> None:
    run = trainer(tmp_path, push_to_hub=False)
    run.train()
    done = run.push_to_hub("By hand")
    assert done.commit_message == "By hand" and uploaded(hub) == of_model(tmp_path)
    run.push_to_hub(revision="other", license="mit", tags=["small"], dataset="rows")
    card = uploaded(hub, "other")["README.md"].decode()
    run.push_to_hub("Again")
    assert hub.repos[NAME].commits[-1] == ("main", "Again"), "a branch is that of one push"
    assert "license: mit" in card and "- small" in card and card.count("# mine") == 1


def test_another_repository_by_its_name(hub: Hub, tmp_path: Path) -> None:
    run = trainer(tmp_path, push_to_hub=False)
    run.push_to_hub()
    run.hub_model_id = "me/other"
    run.push_to_hub()
    assert run.hub_model_id == "me/other" and set(hub.repos) == {NAME, "me/other"}
    run.hub_model_id = None
    run.init_hf_repo()
    assert run.hub_model_id == "me/other"


def test_a_push_behind_the_script(hub: Hub, tmp_path: Path) -> None:
    run = trainer(tmp_path, push_to_hub=False)
    hub.seconds = 0.2
    outcome = run.push_to_hub(blocking=False)
    assert not outcome.done()
    assert outcome.result(20).oid and uploaded(hub) == of_model(tmp_path)


def test_a_push_that_outlives_the_script(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python starts no more threads of a pool from the moment on that a script ends."""

    class Large(burnish.Trainer):
        def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
            super().save_model(output_dir)
            for name in ("one.bin", "two.bin"):
                Path(str(output_dir), name).write_text(name)

    run = runs.trainer(tmp_path, Large, hub_model_id="mine")
    monkeypatch.setattr(concurrent.futures.thread, "_shutdown", True)
    run.push_to_hub(blocking=False).result(20)
    assert {"one.bin", "two.bin", "model.safetensors"} <= set(uploaded(hub))


def test_an_upload_keeps_no_process_alive(hub: Hub, tmp_path: Path) -> None:
    """Python waits at its end for threads of pools: there are none, however many files are sent."""
    before, during = set(threading.enumerate()), set()
    hub.at_blob = lambda: during.update(set(threading.enumerate()) - before)
    trainer(tmp_path, hub_strategy="checkpoint").train()
    ours = {thread for thread in during if thread.name == "upload"}
    assert len(hub.uploaded) > 2 and ours and all(thread.daemon for thread in ours)
    assert not [thread.name for thread in during if thread.name.startswith("ThreadPoolExecutor")]


def test_a_push_that_fails_raises(hub: Hub, tmp_path: Path) -> None:
    run = trainer(tmp_path, push_to_hub=False)
    with pytest.raises(HubError, match="does not take the token"):
        run.push_to_hub(token="hf_" + "w" * 30)
    hub.fails["/commit/"] = (500, 1, "Internal Error")
    with pytest.raises(HubError, match="Internal Error"):
        run.push_to_hub()


def test_saving_a_model_uploads_it(hub: Hub, tmp_path: Path) -> None:
    run = trainer(tmp_path / "out")
    run.save_model()
    assert hub.messages(NAME) == ["Model save"] and uploaded(hub) == of_model(tmp_path / "out")
    run.save_model(str(tmp_path / "elsewhere"))
    assert hub.messages(NAME) == ["Model save"], "the same model"
    assert set(on_disk(tmp_path / "elsewhere")) == MODEL


def test_a_model_that_cannot_be_saved_is_an_error(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    run = trainer(tmp_path, save_strategy="no")
    with monkeypatch.context() as disk:
        disk.setattr(files, "sync", full)
        with pytest.raises(CheckpointError, match="No space left"):
            run.save_model()
    with monkeypatch.context() as disk:
        run.add_callback(At(6, lambda: disk.setattr(files, "sync", full)))
        run.train()
    assert run.state.global_step == 6 and "No space left" in str(run.uploads.failed)
    assert hub.messages(NAME) == [] and str(run.uploads.failed) in caplog.text


def test_a_save_model_of_the_users_own(hub: Hub, tmp_path: Path) -> None:
    class Own(burnish.Trainer):
        def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
            super().save_model(output_dir)
            Path(str(output_dir or self.args.output_dir), "own.txt").write_text("own")

    run = runs.trainer(tmp_path, Own, push_to_hub=True, hub_model_id="mine", max_steps=2, save_strategy="epoch")
    run.train()
    assert uploaded(hub)["own.txt"] == b"own" and hub.messages(NAME)[-1] != "Model save"
    assert (tmp_path / "own.txt").read_text() == "own"


def test_a_card_of_ones_own_is_uploaded_as_it_is(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# My words")
    uploading_each(tmp_path).train()
    assert uploaded(hub)["README.md"] == b"# My words"


def test_a_card_that_somebody_has_written_on_the_hub_stays(hub: Hub, tmp_path: Path) -> None:
    there = {"README.md": b"---\nlicense: mit\n---\n# My words"}
    hub.repos[NAME] = Repo(private=False, branches={"main": dict(there)})
    run = uploading_each(tmp_path)
    run.train()
    assert uploaded(hub) == {**of_model(tmp_path), **there}
    run.push_to_hub(language="en")
    assert b"language: en" in uploaded(hub)["README.md"].replace(b"language:\n- en", b"language: en"), "asked for"


def test_the_card_names_the_repository(hub: Hub, tmp_path: Path) -> None:
    trainer(tmp_path / "out").train()
    card = uploaded(hub)["README.md"].decode()
    assert "# mine\n" in card and 'from_pretrained("me/mine")' in card and "staging" not in card


def test_what_is_not_of_the_model_stays_here(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "private.csv").write_text("rows")
    trainer(tmp_path).train()
    assert set(uploaded(hub)) == MODEL


def test_the_token_is_in_no_file_and_no_line(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with caplog.at_level(logging.DEBUG):
        trainer(tmp_path, hub_strategy="checkpoint", hub_token=TOKEN).train()
    everything = [*on_disk(tmp_path).values(), *uploaded(hub).values(), caplog.text.encode()]
    everything += [text.encode() for text in capfd.readouterr()]
    assert not any(TOKEN.encode() in content for content in everything)
    assert uploaded(hub)["model.safetensors"]
