"""A small run in a process of its own that something happens to, and what it leaves when the same command goes on.

The process is forked from one that has imported everything, so a run takes about a second.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tiny
import torch
from trainer import runs

import burnish
from burnish.checkpoint import copies, find, layout, restore, store, tensors

STEPS, SAVE_STEPS, EVAL_STEPS = 12, 3, 2
FINAL = "final.pt"
"""Written by a run that came to its end: the weights it ended with."""
ERRORS = {"eio": errno.EIO, "enospc": errno.ENOSPC, "read only": errno.EROFS}
OPERATIONS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"}
"""Audit events of Python that change files; syncing is counted with them."""
BALLAST = "ballast"
"""A file that takes the room of a disk."""
RULES: dict[str, dict[str, Any]] = {
    "two": {"save_total_limit": 2},
    "the best two and the last": {"keep_best": 2, "keep_last": 1},
    "milestones and the last two": {"keep_every_steps": 6, "keep_last": 2},
    "all": {},
}
"""What stays of the checkpoints."""
DAMAGES = ("cut", "flipped", "emptied", "deleted")


@dataclass
class AtOperation:
    """Something that happens just before the n-th operation on a file of the run.

    Args:
        what: "kill", "term", or a key of `ERRORS`, with which that operation on a checkpoint, and as many after it as
            `lasting` says, fails.
        at: counted from 1; 0 for never.
    """

    what: str
    at: int
    lasting: int = 1
    seen: list[str] = field(default_factory=list)

    def install(self, folder: Path) -> None:
        fsync = os.fsync

        def counted_fsync(handle: int) -> None:
            self.meet("fsync", os.readlink(f"/proc/self/fd/{handle}"), folder)
            fsync(handle)

        os.fsync = counted_fsync  # type: ignore[assignment]
        sys.addaudithook(lambda event, arguments: self.audit(event, arguments, folder))

    def audit(self, event: str, arguments: tuple[Any, ...], folder: Path) -> None:
        if event in OPERATIONS and isinstance(arguments[0], (str, os.PathLike)):
            writes = event != "open" or any(letter in str(arguments[1]) for letter in "wax+")
            if writes:
                self.meet(event, os.fspath(arguments[0]), folder)

    def meet(self, event: str, path: str, folder: Path) -> None:
        if not path.startswith(str(folder)) or (self.what in ERRORS and layout.PREFIX not in path):
            return
        self.seen.append(f"{event} {Path(path).name}")
        now = len(self.seen)
        if self.what == "kill" and now == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.what == "term" and now == self.at:
            os.kill(os.getpid(), signal.SIGTERM)
        elif self.what in ERRORS and 0 < self.at <= now < self.at + self.lasting:
            raise OSError(ERRORS[self.what], os.strerror(ERRORS[self.what]), path)


class FullDisk(burnish.TrainerCallback):
    """No file may grow past `size` bytes between two steps, or to the end: what a full disk is to a writer."""

    def __init__(self, first: int, last: int, size: int) -> None:
        self.first, self.last, self.size = first, last, size

    def on_step_begin(self, args: Any, state: Any, control: Any, **details: Any) -> None:
        if state.global_step == self.first:
            self.fill(Path(args.output_dir))
        elif state.global_step == self.last:
            self.lift(Path(args.output_dir))

    def on_train_end(self, args: Any, state: Any, control: Any, **details: Any) -> None:
        self.lift(Path(args.output_dir))

    def fill(self, folder: Path) -> None:
        self._limit(self.size)

    def lift(self, folder: Path) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


class SmallDisk(FullDisk):
    """All but `size` bytes of the disk that the folder is on are taken meanwhile."""

    def fill(self, folder: Path) -> None:
        store._SPARE = 0  # else the space is looked for before anything is written
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        with contextlib.suppress(OSError):  # a checkpoint is being written meanwhile
            (folder / BALLAST).write_bytes(bytes(max(0, free - self.size)))

    def lift(self, folder: Path) -> None:
        (folder / BALLAST).unlink(missing_ok=True)


def mount(folder: Path) -> bool:
    """Puts an empty disk of 32 MB in the place of a folder; whether that is permitted here."""
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)], capture_output=True)
    return made.returncode == 0


def may_mount(folder: Path) -> bool:
    """Tries it below `folder`."""
    probe = folder / "probe"
    probe.mkdir()
    try:
        return mount(probe)
    finally:
        unmount(probe)


def unmount(folder: Path) -> None:
    if os.path.ismount(folder):
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def score(prediction: Any) -> dict[str, float]:
    """A number that goes up and down from one evaluation to the next, and follows from the weights."""
    return {"score": float(abs(prediction.predictions).sum() * 7 % 1)}


def trainer(folder: Path, *callbacks: Any, settings: dict[str, Any] | None = None) -> Any:
    """With dropout, evaluations, a best model and few checkpoints kept: all that a resume must bring back."""
    parts = {
        "model": runs.classifier(hidden_dropout_prob=0.2),
        "eval_dataset": tiny.class_rows(7),
        "callbacks": list(callbacks),
        "compute_metrics": score,
    }
    return runs.trainer(
        folder, parts=parts, max_steps=STEPS, save_strategy="steps", save_steps=SAVE_STEPS,
        eval_strategy="steps", eval_steps=EVAL_STEPS, load_best_model_at_end=True, metric_for_best_model="score",
        greater_is_better=True, learning_rate=5e-3, **(RULES["two"] if settings is None else settings),
    )  # fmt: skip


def command(
    folder: Path,
    operations: AtOperation | None = None,
    disk: FullDisk | None = None,
    settings: dict[str, Any] | None = None,
) -> None:
    """What a user would type again and again."""
    if operations is not None:
        operations.install(folder)
    run = trainer(folder, *([disk] if disk else []), settings=settings)
    run.train(resume_from_checkpoint="auto")
    torch.save(run.model.state_dict(), folder / FINAL)
    if operations is not None:
        print(f"{len(operations.seen)} operations on files")


@contextlib.contextmanager
def started(folder: Path, **faults: Any) -> Iterator[int]:
    """The command in a process of its own, which is gone at the end. Its words go into a file beside the folder, by a
    pipe, so that no limit on files is one on them."""
    (folder / FINAL).unlink(missing_ok=True)
    ours, its = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        _in_child(folder, its, faults)
    os.close(its)
    words = threading.Thread(target=_write_down, args=(ours, folder.with_suffix(".txt")))
    words.start()
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
        words.join()


def _write_down(pipe: int, path: Path) -> None:
    with open(pipe, "rb") as source, path.open("ab") as target:
        target.write(source.read())


def _in_child(folder: Path, words: int, faults: dict[str, Any]) -> None:
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(words, 1)
        os.dup2(words, 2)
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 (to the end of the process)
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, force=True)
        copies.WORTH_A_COPY = 0  # as for a large model, whose checkpoints are written behind the training
        command(folder, **faults)
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def finish(folder: Path, **faults: Any) -> int:
    """Runs the command to its end. Returns its exit code, below 0 for the signal that ended it."""
    with started(folder, **faults) as child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def send(folder: Path, number: int, after: float, settings: dict[str, Any]) -> int:
    """Runs the command, and sends a signal after so many seconds. Returns its exit code."""
    with started(folder, settings=settings) as child:
        time.sleep(after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def damage(checkpoint: Path, name: str, how: str, draw: random.Random) -> None:
    path = checkpoint / name
    content = bytearray(path.read_bytes())
    if how == "deleted":
        path.unlink()
    elif how == "cut":
        path.write_bytes(content[: draw.randrange(len(content))])
    elif how == "emptied":
        path.write_bytes(b"")
    else:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)


def outcome(folder: Path) -> dict[str, Any]:
    """What a finished run has come to, without what depends on the clock or the folder."""
    last = folder / layout.folder_name(STEPS)
    state = restore.read_state(last)
    return {
        "problem": find.problem_with(last),
        "weights of the last step": tensors.read(last),
        "optimizer": torch.load(last / layout.OPTIMIZER, weights_only=True),
        "history": runs.without_times(state.log_history),
        "counts": {name: value for name, value in state.ours().items() if name != "total_loss"},
        "best": (state.best_metric, state.best_global_step, Path(str(state.best_model_checkpoint)).name),
        "best weights": torch.load(folder / FINAL, weights_only=True),
    }


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Places at which two outcomes are not the same bits."""
    if isinstance(one, torch.Tensor):
        return [] if torch.equal(one, other) else [where]
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return [f"{where} (names)"]
        return [found for key in one for found in differences(one[key], other[key], f"{where}/{key}")]
    if isinstance(one, (list, tuple)) and len(one) == len(other):
        return [
            found for i, pair in enumerate(zip(one, other, strict=True)) for found in differences(*pair, f"{where}/{i}")
        ]
    return [] if one == other else [f"{where}: {one} != {other}"]
