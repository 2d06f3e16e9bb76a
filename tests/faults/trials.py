"""Trials by a seed: something happens to a run, often several times, and the same command goes on."""

from __future__ import annotations

import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults import harness
from faults.harness import AtOperation, FullDisk

from burnish.checkpoint import find, layout


@dataclass
class Straight:
    """The run that nothing happens to."""

    outcome: dict[str, Any]
    seconds: float
    operations: int
    """On files, until its end."""

    @classmethod
    def in_folder(cls, folder: Path) -> Straight:
        harness.command(folder / "first")  # imports what is imported where it is used, for all that are forked
        folder = folder / "run"
        folder.mkdir()
        begun = time.perf_counter()
        code = harness.finish(folder, operations=AtOperation("kill", 0))
        seconds = time.perf_counter() - begun
        words = folder.with_suffix(".txt").read_text()
        counted = re.search(r"(\d+) operations on files", words)
        assert code == 0 and counted, words
        return cls(harness.outcome(folder), seconds, int(counted.group(1)))


def killed(folder: Path, draw: random.Random, straight: Straight) -> None:
    harness.send(folder, signal.SIGKILL, draw.uniform(0, straight.seconds))


def terminated(folder: Path, draw: random.Random, straight: Straight) -> None:
    code = harness.send(folder, signal.SIGTERM, draw.uniform(0, straight.seconds))
    assert code in (143, 0, -signal.SIGTERM), f"exit code {code}"


def killed_at_operation(folder: Path, draw: random.Random, straight: Straight) -> None:
    harness.finish(folder, operations=AtOperation("kill", draw.randint(1, straight.operations)))


def terminated_at_operation(folder: Path, draw: random.Random, straight: Straight) -> None:
    harness.finish(folder, operations=AtOperation("term", draw.randint(1, straight.operations)))


def failing_operations(folder: Path, draw: random.Random, straight: Straight) -> None:
    what, lasting = draw.choice(sorted(harness.ERRORS)), draw.choice([1, 1, 5, 60])
    code = harness.finish(folder, operations=AtOperation(what, draw.randint(1, straight.operations), lasting))
    assert code == 0, f"exit code {code}: an error of the disk ended the run"


def full_disk(folder: Path, draw: random.Random, straight: Straight) -> None:
    first = draw.randrange(harness.STEPS - 1)
    disk = FullDisk(first, draw.randint(first + 1, harness.STEPS), draw.choice([50, 2_000, 20_000]))
    code = harness.finish(folder, disk=disk)
    assert code == 0, f"exit code {code}: a full disk ended the run"


def damaged(folder: Path, draw: random.Random, straight: Straight) -> None:
    """The run is killed late enough that there are checkpoints, and a file of the newest one is not what it was."""
    harness.send(folder, signal.SIGKILL, draw.uniform(straight.seconds * 0.6, straight.seconds))
    good = [path for path in find.checkpoints(folder) if find.problem_with(path) is None]
    if good:
        names = [path.name for path in good[-1].iterdir()]
        harness.damage(good[-1], draw.choice(sorted(names)), draw.choice(harness.DAMAGES), draw)


Fault = Callable[[Path, random.Random, Straight], None]
FAULTS: dict[str, Fault] = {
    "SIGKILL at any moment": killed,
    "SIGTERM at any moment": terminated,
    "SIGKILL at an operation on a file": killed_at_operation,
    "SIGTERM at an operation on a file": terminated_at_operation,
    "operations on checkpoints fail": failing_operations,
    "full disk": full_disk,
    "damaged newest checkpoint": damaged,
}
LOSES_BEST = ("operations on checkpoints fail", "full disk", "damaged newest checkpoint")
"""After these the best checkpoint may be gone, or never have been written: another is then the best that there is."""


def trial(kind: str, seed: int, folder: Path, straight: Straight) -> list[str]:
    """What a run of which the same thing happened to one to three times differs in from the straight one."""
    draw = random.Random(f"{kind} {seed}")
    folder.mkdir()
    for _ in range(draw.choice([1, 1, 2, 3])):
        FAULTS[kind](folder, draw, straight)
    last = folder / layout.folder_name(harness.STEPS)
    for _ in range(2):
        code = harness.finish(folder)
        if code != 0:
            return [f"exit code {code}: {folder.with_suffix('.txt').read_text()[-2000:]}"]
        if find.problem_with(last) is None:
            break
    found = harness.outcome(folder)
    told = harness.differences(without_best(found, kind), without_best(straight.outcome, kind))
    told += [f"left behind: {path.name}" for path in folder.glob(".*")]
    if kind in LOSES_BEST and find.problem_with(folder / found["best"][2]) is not None:
        told.append(f"the best checkpoint {found['best'][2]} is not there")
    if not told:
        shutil.rmtree(folder)
    return told


def without_best(outcome: dict[str, Any], kind: str) -> dict[str, Any]:
    if kind not in LOSES_BEST:
        return outcome
    return {name: value for name, value in outcome.items() if not name.startswith("best")}
