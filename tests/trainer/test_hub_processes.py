"""Uploads of several processes, and of one that ends in the middle."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed.forked import in_processes
from hub_server import Hub, local_hub
from safetensors.torch import load_file
from trainer.test_hub import NAME, At, Told, of_model, on_disk, trainer, uploaded

from burnish.checkpoint import files, find


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with local_hub(monkeypatch) as found:
        yield found


def two(folder: Path) -> Any:
    told = Told()
    run = trainer(folder, told)
    run.train()
    return run.hub_model_id, run.uploads.repository is not None, told.steps


def test_of_two_processes_one_uploads(hub: Hub, tmp_path: Path) -> None:
    ended = in_processes(2, tmp_path / "answers", two, tmp_path / "out")
    names, uploads, steps = zip(*(one.value for one in ended), strict=True)
    assert names == (NAME, NAME) and uploads == (True, False)
    assert steps[0][:3] == steps[1][:3] == [2, 4, 6]
    assert [path for _, path in hub.asked].count("/api/repos/create") == 1
    assert uploaded(hub) == of_model(tmp_path / "out")


def in_parts(folder: Path, strategy: str) -> Any:
    sharding = {"fsdp": "full_shard", "fsdp_config": {"state_dict_type": "SHARDED_STATE_DICT"}}
    run = trainer(folder, hub_strategy=strategy, save_total_limit=1, **sharding)
    run.train()
    return run.uploads.failed


@pytest.mark.parametrize("strategy", ["every_save", "checkpoint"])
def test_a_divided_model_is_whole_at_the_end(hub: Hub, tmp_path: Path, strategy: str) -> None:
    ended = in_processes(2, tmp_path / "answers", in_parts, tmp_path / "out", strategy)
    assert [one.value for one in ended] == [None, None] and [one.error for one in ended] == [None, None]
    assert uploaded(hub).items() >= of_model(tmp_path / "out").items()
    assert {path.name for path in find.checkpoints(tmp_path / "out")} == {"checkpoint-6"}
    there = hub.files(NAME, below="last-checkpoint/")
    assert there == (on_disk(tmp_path / "out" / "checkpoint-6") if strategy == "checkpoint" else {})


def unsaved(folder: Path) -> Any:
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    run = trainer(folder, At(6, lambda: setattr(files, "sync", full)), save_strategy="no")
    run.train()
    return str(run.uploads.failed)


def test_of_two_processes_both_end_where_the_model_cannot_be_saved(hub: Hub, tmp_path: Path) -> None:
    first, second = in_processes(2, tmp_path / "answers", unsaved, tmp_path / "out")
    assert "No space left" in first.value and second.value == "None"


def refused(folder: Path) -> Any:
    trainer(folder, hub_model_id="others/model").train()


def test_of_two_processes_both_end_where_one_may_not_write(hub: Hub, tmp_path: Path) -> None:
    first, second = in_processes(2, tmp_path / "answers", refused, tmp_path / "out")
    assert first.error == "HubError" and "may not write" in second.words


def goes_on_until_step_5(folder: Path, step_5: Any) -> None:
    def tells() -> None:
        step_5.set()
        time.sleep(0.3)

    try:
        trainer(folder, At(5, tells), hub_strategy="checkpoint").train()
    except KeyboardInterrupt:
        os._exit(130)


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_an_end_in_the_middle_of_an_upload(hub: Hub, tmp_path: Path, how: signal.Signals, code: int) -> None:
    """Nothing of it is in the repository, and the same run goes on and uploads."""
    asked, go = threading.Event(), threading.Event()

    def hold() -> None:
        asked.set()
        go.wait(30)

    hub.at_commit = hold
    fork = multiprocessing.get_context("fork")
    step_5 = fork.Event()
    run = fork.Process(target=goes_on_until_step_5, args=(tmp_path, step_5))
    run.start()
    assert asked.wait(30) and step_5.wait(30)
    before = uploaded(hub)
    os.kill(run.pid or 0, how)
    run.join(30)
    assert run.exitcode == code and before == {}
    hub.at_commit = lambda: None
    go.set()
    again = trainer(tmp_path, hub_strategy="checkpoint")
    again.train(resume_from_checkpoint="auto")
    assert uploaded(hub).items() >= of_model(tmp_path).items()
    assert hub.files(NAME, below="last-checkpoint/") == on_disk(find.checkpoints(tmp_path)[-1])
    assert load_file(tmp_path / "model.safetensors").keys() == again.model.state_dict().keys()
