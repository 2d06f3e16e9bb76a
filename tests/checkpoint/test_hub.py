"""A repository of the hub, by the real client, against a server on this machine."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import TOKEN, Hub, Repo, local_hub

from burnish.checkpoint import bars, hub_files, in_use
from burnish.checkpoint.hub import Repository, Upload, is_offline
from burnish.checkpoint.hub_queue import UploadQueue
from burnish.core.errors import CheckpointError, HubError


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with local_hub(monkeypatch) as found:
        yield found


def file(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# ---------------------------------------------------------------- a repository


def test_a_name_alone_is_a_repository_of_ones_own(hub: Hub) -> None:
    assert Repository("mine", private=True).ready().name == "me/mine"
    assert hub.repos["me/mine"].private
    assert Repository("me/mine").ready().name == "me/mine", "one that is there already"


def test_a_branch_is_made(hub: Hub) -> None:
    repository = Repository("mine", revision="trial/1").ready()
    repository.commit(Upload("one", {"a.txt": "a"}))
    assert hub.files("me/mine", "trial/1")["a.txt"] == b"a"
    assert "a.txt" not in hub.files("me/mine")


@pytest.mark.parametrize(
    ("name", "token", "says"),
    [
        ("mine", "hf_" + "w" * 30, "does not take the token.*hf auth login"),
        ("others/model", TOKEN, "may not write to others/model.*rights to write to others.*hub_model_id"),
        ("others/there", TOKEN, "may not write to others/there.*hub_model_id"),
        ("no/such/name", TOKEN, "'no/such/name' cannot be the name.*hub_model_id"),
        ("my out (2)", TOKEN, r"'my out \(2\)' cannot be the name.*hub_model_id"),
        ("mine", TOKEN + "\n", "hub_token has a blank, a line break"),
        ("mine", "secret-ü", "hub_token has a blank, a line break"),
    ],
)
def test_what_cannot_be_written_to_is_found_at_once(hub: Hub, name: str, token: str, says: str) -> None:
    hub.repos["others/there"] = Repo(private=False)
    with pytest.raises(HubError, match=says) as raised:
        Repository(name, token=token).ready()
    assert token.strip() not in "".join(traceback.format_exception(raised.value))


def test_a_pull_request_that_is_not_there(hub: Hub) -> None:
    with pytest.raises(HubError, match=r"mine has no branch refs/pr/1 .*hub_revision"):
        Repository("mine", revision="refs/pr/1").ready()
    hub.repos["me/mine"].branches["refs/pr/1"] = {}
    Repository("mine", revision="refs/pr/1").ready().commit(Upload("one", {"a.txt": "a"}))
    assert hub.files("me/mine", "refs/pr/1") == {"a.txt": b"a"}


def test_a_server_that_is_not_there(hub: Hub) -> None:
    hub.stop()
    with pytest.raises(HubError, match=r"http://127.0.0.1.* cannot be reached .*push_to_hub=False"):
        Repository("mine").ready()


def test_a_server_that_knows_no_question_of_rights(hub: Hub) -> None:
    hub.fails["auth-check"] = (404, 9, "Cannot GET")
    assert Repository("mine").ready().name == "me/mine"


def test_the_token_is_not_shown() -> None:
    assert TOKEN not in repr(Repository("mine", token=TOKEN))


def test_offline_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_offline(), "as the tests run"
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        Repository("mine").ready()


# ---------------------------------------------------------------- a commit


def test_what_arrives_is_what_was_sent(hub: Hub, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    large, small = file(tmp_path, "model.safetensors", content), file(tmp_path, "config.json", b"{}")
    repository = Repository("mine").ready()
    done = repository.commit(Upload("one", {"model.safetensors": large, "sub/config.json": small, "README.md": "# A"}))
    assert done.repo_url.repo_id == "me/mine"
    files = hub.files("me/mine")
    del files[".gitattributes"]
    assert files == {"model.safetensors": content, "sub/config.json": b"{}", "README.md": b"# A"}
    assert hub.messages("me/mine") == ["one"]


def test_what_is_there_is_not_sent_again(hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    upload = Upload("one", {"model.safetensors": file(tmp_path, "m", b"weights")})
    repository = Repository("mine").ready()
    repository.commit(upload)
    repository.commit(upload)
    assert hub.messages("me/mine") == ["one"] and len(hub.uploaded) == 1
    assert caplog.text == ""


def test_the_same_weights_twice_in_a_commit_are_sent_once(hub: Hub, tmp_path: Path) -> None:
    weights = file(tmp_path, "m", b"weights")
    files: dict[str, Path | str] = {"model.safetensors": weights, "last-checkpoint/model.safetensors": weights}
    Repository("mine").ready().commit(Upload("one", files, ("last-checkpoint",)))
    assert len(hub.uploaded) == 1 and hub.files("me/mine", below="last-checkpoint/") == {
        "model.safetensors": b"weights"
    }


def test_weights_of_an_older_model_go_and_all_else_stays(hub: Hub) -> None:
    there = ("model-00001-of-00002.safetensors", "model.safetensors.index.json", "notes.txt", "last-checkpoint/old.pt",
             "elsewhere/model.safetensors")  # fmt: skip
    hub.repos["me/mine"] = Repo(private=False, branches={"main": dict.fromkeys(there, b"old")})
    repository = Repository("me/mine").ready()
    repository.commit(Upload("no weights", {"a.txt": "a"}))
    assert set(there) <= set(hub.files("me/mine"))
    repository.commit(Upload("one", {"model.safetensors": "new", "last-checkpoint/x.pt": "x"}, ("last-checkpoint",)))
    assert set(hub.files("me/mine")) == {
        *("model.safetensors", "notes.txt", "a.txt", "last-checkpoint/x.pt", "elsewhere/model.safetensors"),
    }


def test_an_error_in_the_middle_leaves_the_repository_as_it_was(hub: Hub, tmp_path: Path) -> None:
    repository = Repository("mine").ready()
    upload = Upload("one", {"model.safetensors": file(tmp_path, "m", b"weights"), "a.txt": "a"})
    hub.fails["/commit/"] = (500, 1, "Internal Error - We're working hard to fix this as soon as possible!")
    with pytest.raises(HubError, match=r"did not take it .*working hard"):
        repository.commit(upload)
    assert set(hub.files("me/mine")) == {".gitattributes"}
    repository.commit(upload)
    assert hub.files("me/mine")["model.safetensors"] == b"weights"
    assert len(hub.uploaded) == 1, "what had arrived before the error is not sent again"


def test_one_of_several_files_is_refused(hub: Hub, tmp_path: Path) -> None:
    repository = Repository("mine").ready()
    files = {f"{name}.safetensors": file(tmp_path, name, name.encode()) for name in "abc"}
    hub.fails["/blob/"] = (403, 1, "The quota of this account is used up")
    with pytest.raises(HubError, match="quota of this account"):
        repository.commit(Upload("one", files))


def test_no_bars_are_drawn_and_they_are_as_before(hub: Hub, tmp_path: Path, capfd: Any) -> None:
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    files = {f"{name}.safetensors": file(tmp_path, name, os.urandom(200_000)) for name in "abc"}
    with bars.no_progress_bars():
        repository = Repository("mine").ready()
        assert are_progress_bars_disabled(), "one that ends leaves those that go on alone"
    assert not are_progress_bars_disabled()
    repository.commit(Upload("one", files))
    assert capfd.readouterr().err == ""
    disable_progress_bars()
    try:
        repository.commit(Upload("two", {"a.txt": "a"}))
        assert are_progress_bars_disabled()
    finally:
        enable_progress_bars()


# ---------------------------------------------------------------- files


def test_which_files_are_of_the_model(tmp_path: Path) -> None:
    model = (
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "training_args.json",
        "adapter/adapter_model.safetensors",
    )
    state = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "rng_state_1.pth", "trainer_state.json", "burnish.json",
             "manifest.json", "deepspeed/mp_rank_00_model_states.pt", "parts/0.safetensors")  # fmt: skip
    for name in (*model, *state, ".hidden", ".git/config"):
        file(tmp_path, name, b"")
    assert set(hub_files.of_model(tmp_path)) == set(model)
    assert set(hub_files.of_checkpoint(tmp_path, "last")) == {f"last/{name}" for name in (*model, *state)}


def test_the_command_leaves_out_what_is_not_of_the_model() -> None:
    text = hub_files.command("me/mine", "out dir", "trial")
    assert text.startswith("hf upload me/mine 'out dir' . --exclude 'checkpoint-*'") and text.endswith(
        "--revision trial"
    )


# ---------------------------------------------------------------- one at a time


class Held:
    """Work that goes on until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.go.wait(10)
        return "done"


def test_a_newer_upload_takes_the_place_of_one_that_waits() -> None:
    queue, first, done = UploadQueue(), Held(), []
    outcomes = [queue.add("first", first)]
    assert first.begun.wait(10)
    outcomes += [queue.add(name, lambda name=name: done.append(name)) for name in ("second", "third")]
    assert queue.names == ["first", "third"]
    first.go.set()
    assert queue.wait()
    assert outcomes[0].result() == "done" and done == ["third"] and outcomes[1].cancelled()
    assert queue.names == [] and queue.wait()


def test_those_that_must_be_done_have_their_turn() -> None:
    queue, first, done = UploadQueue(), Held(), []
    queue.add("first", first)
    for name, must in (("second", True), ("third", False), ("fourth", True), ("fifth", False)):
        queue.add(name, lambda name=name: done.append(name), must=must)
    first.go.set()
    assert queue.wait()
    assert done == ["second", "fourth", "fifth"]


def test_a_failure_is_that_of_its_upload_alone() -> None:
    queue, first = UploadQueue(), Held()
    queue.add("first", first)
    failing = queue.add("failing", lambda: 1 // 0, must=True)
    other = queue.add("other", lambda: 7, must=True)
    first.go.set()
    assert isinstance(failing.exception(10), ZeroDivisionError) and other.result(10) == 7


def test_a_checkpoint_stays_until_it_is_uploaded(tmp_path: Path) -> None:
    queue, first = UploadQueue(), Held()
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    queue.add("one", first, reads=folders[0])
    queue.add("two", list, reads=folders[1])
    queue.add("three", list, reads=folders[2])

    def claimable() -> list[bool]:
        found = []
        for folder in folders:
            with in_use.claimed(folder) as nobody_reads_it:
                found.append(nobody_reads_it)
        return found

    assert claimable() == [False, True, False]
    first.go.set()
    queue.wait()
    assert claimable() == [True, True, True]


def test_a_checkpoint_that_is_being_deleted_is_not_taken_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_use, "PATIENCE", 0.05)
    with in_use.claimed(tmp_path), pytest.raises(CheckpointError, match="being deleted"):
        UploadQueue().add("one", list, reads=tmp_path)


def test_those_that_wait_are_left_when_a_stop_is_asked_for() -> None:
    class Stop:
        requested = 2

        def raise_for(self, number: int) -> Any:
            raise AssertionError

    queue, first = UploadQueue(), Held()
    queue.add("first", first)
    second = queue.add("second", list)
    assert not queue.wait(Stop()) and not queue.wait(seconds=0.01)
    assert queue.leave() == ["first", "second"] and second.cancelled()
    first.go.set()
    assert queue.wait(Stop())
