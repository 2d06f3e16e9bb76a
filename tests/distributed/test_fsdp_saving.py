"""Checkpoints of divided models are written behind the training, and nothing is lost by it."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed.forked import Ended, in_processes, values
from distributed.test_fsdp import whole
from safetensors import safe_open
from trainer import runs

import burnish
from burnish.checkpoint import copies, files, find, parts, store
from burnish.checkpoint.verify import problem_with
from burnish.checkpoint.weights import load_weights
from burnish.run import saving

SHARDED = {"state_dict_type": "SHARDED_STATE_DICT"}
STEPS, SAVE_STEPS = 6, 2


@pytest.fixture(autouse=True)
def _copies_of_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "WORTH_A_COPY", 0)


def rank() -> int:
    return int(os.environ["RANK"])


class Seen(burnish.TrainerCallback):
    """What was on the disk at the end of each step; something may be done then."""

    def __init__(self, at: dict[int, Callable[[], Any]]) -> None:
        self.at, self.ended = at, dict[int, list[str]]()

    def on_step_end(self, args: Any, state: Any, control: Any, **details: Any) -> None:
        self.ended[state.global_step] = on_disk(Path(args.output_dir))
        self.at.get(state.global_step, lambda: None)()


class Saves(burnish.TrainerCallback):
    """Checkpoints that were made known, at which step."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def on_save(self, args: Any, state: Any, control: Any, **details: Any) -> None:
        self.heard.append(state.global_step)


Saves.__module__ = "transformers.integrations"  # one of a user's own would hear of a save before the next step


def on_disk(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if "checkpoint-" in path.name)


def good(folder: Path, *steps: int) -> bool:
    names = [f"checkpoint-{step}" for step in steps]
    return on_disk(folder) == names and all(problem_with(folder / name) is None for name in names)


def writing(before: Callable[[int], Any]) -> None:
    """In this process: calls `before` with the number of the write, from 1, before a part is written."""
    write, numbers = parts.write, []

    def later(*given: Any) -> Any:
        numbers.append(1)
        before(len(numbers))
        return write(*given)

    parts.write = later


def run(folder: Path, at: dict[int, Callable[[], Any]] | None = None, **settings: Any) -> Any:
    seen, saves = Seen(at or {}), Saves()
    given = {"fsdp": True, "fsdp_config": SHARDED, "max_steps": STEPS, "per_device_train_batch_size": 4}
    given |= {"save_strategy": "steps", "save_steps": SAVE_STEPS, **settings}
    chosen = {"model": runs.classifier(hidden_dropout_prob=0.1), "callbacks": [seen, saves]}
    made = runs.trainer(folder, parts=chosen, **given)
    made.seen, made.saves = seen, saves
    return made


def behind(folder: Path, on: int, kind: str) -> Any:
    """The first write of one process does not end before a later step has."""
    opened = threading.Event()
    if rank() == on:
        if kind == "parts":
            writing(lambda number: opened.wait(20))
        else:
            write = store.write
            store.write = lambda *given: opened.wait(20) and write(*given)  # type: ignore[assignment]
    given = {} if kind == "parts" else {"fsdp_config": {}}
    made = run(folder, {3: opened.set}, **given)
    made.train()
    return made.seen.ended, made.saves.heard, whole(made.model), opened.is_set()


def resumed(folder: Path, checkpoint: Path, **given: Any) -> Any:
    made = run(folder, save_strategy="no", **given)
    made.train(resume_from_checkpoint=str(checkpoint))
    return whole(made.model)


@pytest.mark.parametrize(("kind", "on"), [("parts", 0), ("parts", 1), ("full", 0)])
def test_training_goes_on_and_the_checkpoint_is_of_its_moment(kind: str, on: int, tmp_path: Path) -> None:
    folder, given = tmp_path / "run", {} if kind == "parts" else {"fsdp_config": {}}
    found = values(in_processes(2, tmp_path, behind, folder, on, kind))
    for ended, heard, weights, is_opened in found:
        assert heard == [2, 4, 6] and is_opened
        assert all(name.startswith(".staging-") for step in (1, 2, 3) for name in ended[step])
        assert runs.difference(weights, found[0][2]) == 0.0
    assert good(folder, 2, 4, 6)
    for weights in values(in_processes(2, tmp_path, resumed, tmp_path / "again", folder / "checkpoint-2", **given)):
        assert runs.difference(weights, found[0][2]) == 0.0


def at_once(folder: Path) -> Any:
    made = run(folder, save_async=False)
    made.train()
    return made.seen.ended[3], made.saves.heard


def test_without_it_the_training_waits(tmp_path: Path) -> None:
    assert values(in_processes(2, tmp_path, at_once, tmp_path / "run")) == [(["checkpoint-2"], [2, 4, 6])] * 2


def broken(folder: Path, on: int, save_async: bool, takes_no_record: bool) -> Any:
    """A disk that is full when one process writes its first part, and may not even take the record of that."""

    def fill(number: int) -> None:
        if number == 1 and rank() == on:
            raise OSError(28, "No space left on device")

    replace = files.replace_json

    def refuse(path: Path, content: Any) -> None:
        if path.name.startswith(".part-"):
            raise OSError(28, "No space left on device", str(path))
        replace(path, content)

    writing(fill)
    if takes_no_record:
        files.replace_json = refuse
    failures: list[str] = []
    made = run(folder, save_async=save_async)
    saving.logger.error = lambda message, step, error: failures.append(  # type: ignore[method-assign, assignment]
        f"{step} after {made.state.global_step}: {error}"
    )
    made.train()
    return failures, made.saves.heard


@pytest.mark.parametrize(
    ("on", "save_async", "takes_no_record"),
    [(0, True, False), (1, True, False), (1, True, True), (1, False, False)],
)
def test_a_full_disk_on_one_process_is_told_on_all(
    on: int, save_async: bool, takes_no_record: bool, tmp_path: Path
) -> None:
    one, other = values(in_processes(2, tmp_path, broken, tmp_path / "run", on, save_async, takes_no_record))
    assert one == other and one[1] == [4, 6]
    (failure,) = one[0]
    assert failure.startswith("2 after ") and f"process {on}: [Errno 28] No space left" in failure
    assert good(tmp_path / "run", 4, 6)


def killed(folder: Path, on: int, where: str) -> None:
    """One process is killed while the second checkpoint is written."""

    def kill() -> None:
        if rank() == on:
            os.kill(os.getpid(), signal.SIGKILL)

    if where == "before":
        writing(lambda number: number == 2 and kill())
    elif where == "after":
        replace, records = files.replace_json, []

        def then_kill(path: Path, content: Any) -> None:
            replace(path, content)
            records.append(path.name)
            if records.count(".part-1") == 2:
                kill()

        files.replace_json = then_kill
    made = run(folder, max_steps=1000, save_total_limit=None)
    made.train()


@pytest.mark.parametrize(("on", "where"), [(0, "before"), (1, "before"), (1, "after")])
def test_a_process_that_is_killed_leaves_the_last_good_checkpoint(on: int, where: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ended = in_processes(2, tmp_path, killed, folder, on, where)
    assert (ended[on].error, ended[1 - on].error) == ("Killed", "ProcessError")
    newest = find.newest_good(folder, None)
    assert newest is not None and newest.name == ("checkpoint-2" if where == "before" else "checkpoint-4")
    values(in_processes(2, tmp_path, resumed, folder, newest))
    assert all(name.startswith("checkpoint-") for name in on_disk(folder))


def at_a_moment(folder: Path, kind: str, on: int | None, seconds: float) -> Any:
    """Saves after every step; one process is killed so long after the first checkpoint stands."""

    def kill() -> None:
        while not list(folder.glob("checkpoint-*")):
            time.sleep(0.005)
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    if rank() == on:
        threading.Thread(target=kill, daemon=True).start()
    given = {} if kind == "parts" else {"fsdp_config": {}}
    made = run(folder, max_steps=12, save_steps=1, save_total_limit=2, **given)
    made.train(resume_from_checkpoint="auto")
    return whole(made.model)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_process_that_is_killed_at_any_moment(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    kind, on, seconds = draw.choice(("parts", "parts", "full")), draw.randrange(2), 0.8 * draw.random()
    (straight, _) = values(in_processes(2, tmp_path, at_a_moment, tmp_path / "straight", kind, None, 0.0))
    in_processes(2, tmp_path, at_a_moment, tmp_path / "run", kind, on, seconds)
    assert find.newest_good(tmp_path / "run", None) is not None
    assert all(problem_with(path) is None for path in (tmp_path / "run").glob("checkpoint-*"))
    for weights in values(in_processes(2, tmp_path, at_a_moment, tmp_path / "run", kind, None, 0.0)):
        assert runs.difference(weights, straight) == 0.0
    assert good(tmp_path / "run", 11, 12)


def slow(folder: Path, seconds: float, at: dict[int, Callable[[], Any]] | None = None, **settings: Any) -> Any:
    """Each write of one process takes so long."""
    at_work, most = [0], [0]
    write = parts.write

    def slowly(*given: Any) -> Any:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        time.sleep(seconds if rank() == 1 else 0.0)
        names = write(*given)
        at_work[0] -= 1
        return names

    parts.write = slowly
    made = run(folder, at, **settings)
    made.train()
    return most[0], made.saves.heard, on_disk(folder)


def test_the_next_save_and_the_end_wait_for_a_slow_process(tmp_path: Path) -> None:
    names = ["checkpoint-1", "checkpoint-2", "checkpoint-3"]
    given = {"save_steps": 1, "max_steps": 3}
    found = values(in_processes(2, tmp_path, slow, tmp_path / "run", 0.3, **given))
    assert found == [(1, [1, 2, 3], names)] * 2 and good(tmp_path / "run", 1, 2, 3)


def stopped(folder: Path, number: int) -> None:
    slow(folder, 0.5, {4: lambda: rank() == 1 and os.kill(os.getpid(), number)}, save_steps=3, max_steps=1000)


def failing(folder: Path) -> None:
    """An error on one process while its part is being written."""

    def fail() -> None:
        if rank() == 1:
            raise KeyError("broken on purpose")

    slow(folder, 0.5, {3: fail})


def test_a_signal_waits_for_the_write(tmp_path: Path) -> None:
    ended = in_processes(2, tmp_path, stopped, tmp_path / "run", signal.SIGTERM)
    assert [one.error for one in ended] == ["SystemExit"] * 2
    assert good(tmp_path / "run", 3, 4)


def test_an_error_waits_for_the_write(tmp_path: Path) -> None:
    ended: list[Ended] = in_processes(2, tmp_path, failing, tmp_path / "run")
    assert [one.error for one in ended] == ["ProcessError", "KeyError"]
    assert good(tmp_path / "run", 2)


def without_memory(folder: Path) -> Any:
    """One process has no memory for a copy."""
    if rank() == 1:
        copied = copies.HostMemory.copied

        def refuse(self: Any, content: Any) -> Any:
            if content:
                raise MemoryError("no memory")
            return copied(self, content)

        copies.HostMemory.copied = refuse  # type: ignore[method-assign]
    made = run(folder)
    made.train()
    return made.seen.ended[3]


def test_without_memory_for_a_copy_on_one_process_all_write_at_once(tmp_path: Path) -> None:
    assert values(in_processes(2, tmp_path, without_memory, tmp_path / "run")) == [["checkpoint-2"]] * 2
    assert good(tmp_path / "run", 2, 4, 6)


def hybrid(folder: Path) -> Any:
    """Two groups of two processes hold the same."""
    config = {**SHARDED, "dp_shard_size": 2}
    made = run(folder, fsdp="hybrid_shard", fsdp_config=config, per_device_train_batch_size=2, max_steps=2)
    made.train()
    return whole(made.model)


def test_what_several_processes_hold_alike_is_written_once(tmp_path: Path) -> None:
    found = values(in_processes(4, tmp_path, hybrid, tmp_path / "run"))
    seen: list[tuple[str, list[int]]] = []
    sizes = []
    for path in sorted((tmp_path / "run" / "checkpoint-2" / "parts").glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            places = json.loads(file.metadata()["DCP_SHARDING_INFO"])
            seen += [(name, places[name]["saved_offsets"]) for name in file.keys()]  # noqa: SIM118 (no mapping)
            sizes.append(path.stat().st_size)
    assert len(sizes) == 4 and max(sizes) < 2 * min(sizes), "each writes its share"
    assert len(seen) == len({(name, *offsets) for name, offsets in seen})
    other = runs.classifier()
    load_weights(other, tmp_path / "run" / "checkpoint-2")
    assert runs.difference(other, found[0]) == 0.0
