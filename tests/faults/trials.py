"""Trials by a seed: something happens to a run, often several times, and the same command goes on."""

from __future__ import annotations

import os
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
from faults.harness import AtOperation, FullDisk, SmallDisk

from burnish.checkpoint import find, layout


@dataclass
class Straight:
    """The run that nothing happens to."""

    outcome: dict[str, Any]
    seconds: float
    operations: int
    """On files, until its end."""
    stay: dict[str, set[str]]
    """The checkpoints that each of `harness.RULES` leaves."""

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
        outcome, stay = harness.outcome(folder), {}
        for number, (rule, settings) in enumerate(harness.RULES.items()):
            place = folder.with_name(f"rule-{number}")
            place.mkdir()
            assert harness.finish(place, settings=settings) == 0, place.with_suffix(".txt").read_text()
            assert harness.differences(harness.outcome(place), outcome) == []
            stay[rule] = {path.name for path in find.checkpoints(place)}
        return cls(outcome, seconds, int(counted.group(1)), stay)


def killed(folder: Path, draw: random.Random, straight: Straight, settings: Settings) -> None:
    harness.send(folder, signal.SIGKILL, draw.uniform(0, straight.seconds), settings)


def terminated(folder: Path, draw: random.Random, straight: Straight, settings: Settings) -> None:
    code = harness.send(folder, signal.SIGTERM, draw.uniform(0, straight.seconds), settings)
    assert code in (143, 0, -signal.SIGTERM), f"exit code {code}"


def killed_at_operation(folder: Path, draw: random.Random, straight: Straight, settings: Settings) -> None:
    operation = AtOperation("kill", draw.randint(1, straight.operations))
    harness.finish(folder, operations=operation, settings=settings)


def terminated_at_operation(folder: Path, draw: random.Random, straight: Straight, settings: Settings) -> None:
    operation = AtOperation("term", draw.randint(1, straight.operations))
    harness.finish(folder, operations=operation, settings=settings)


def failing_operations(folder: Path, draw: random.Random, straight: Straight, settings: Settings) -> None:
    what, lasting = draw.choice(sorted(harness.ERRORS)), draw.choice([1, 1, 5, 60])
    operations = AtOperation(what, draw.randint(1, straight.operations), lasting)
    _check_ended(folder, harness.finish(folder, operations=operations, settings=settings))


def full_disk(folder: Path, draw: random.Random, straight: Straight, settings: Settings) -> None:
    first = draw.randrange(harness.STEPS - 1)
    disk = FullDisk(first, draw.randint(first + 1, harness.STEPS), draw.choice([50, 2_000, 20_000]))
    _check_ended(folder, harness.finish(folder, disk=disk, settings=settings))


def small_disk(folder: Path, draw: random.Random, straight: Straight, settings: Settings) -> None:
    """A real file system with next to no room."""
    assert os.path.ismount(folder) or harness.mount(folder)
    first = draw.randrange(harness.STEPS - 1)
    size = draw.choice([0, 4_096, 20_000, 60_000, 150_000, 400_000])
    disk = SmallDisk(first, draw.randint(first + 1, harness.STEPS), size)
    _check_ended(folder, harness.finish(folder, disk=disk, settings=settings))


def _check_ended(folder: Path, code: int) -> None:
    """Errors of the disk do not end a run; it fails at its end if its last state could not be written."""
    unsaved = find.problem_with(folder / layout.folder_name(harness.STEPS))
    words = folder.with_suffix(".txt").read_text()
    assert code == 0 if unsaved is None else code == 1, f"exit code {code}, though {unsaved}: {words[-2000:]}"
    assert unsaved is None or "UnsavedError" in words, words[-2000:]


def damaged(folder: Path, draw: random.Random, straight: Straight, settings: Settings) -> None:
    """The run is killed late enough that there are checkpoints, and a file of the newest one is not what it was."""
    harness.send(folder, signal.SIGKILL, draw.uniform(straight.seconds * 0.6, straight.seconds), settings)
    good = [path for path in find.checkpoints(folder) if find.problem_with(path) is None]
    if good:
        names = [path.name for path in good[-1].iterdir()]
        harness.damage(good[-1], draw.choice(sorted(names)), draw.choice(harness.DAMAGES), draw)


Settings = dict[str, Any]
Fault = Callable[[Path, random.Random, Straight, Settings], None]
FAULTS: dict[str, Fault] = {
    "SIGKILL at any moment": killed,
    "SIGTERM at any moment": terminated,
    "SIGKILL at an operation on a file": killed_at_operation,
    "SIGTERM at an operation on a file": terminated_at_operation,
    "operations on checkpoints fail": failing_operations,
    "full disk": full_disk,
    "damaged newest checkpoint": damaged,
    "small disk": small_disk,
}
NEEDS_MOUNT = "small disk"
SAVES_NO_OTHERS = ("SIGKILL at any moment", "SIGKILL at an operation on a file")
"""After these a run has saved what it would have saved. A signal that is obeyed adds a checkpoint."""
LOSES_BEST = ("operations on checkpoints fail", "full disk", "damaged newest checkpoint", "small disk")
"""After these the best checkpoint may be gone, or never have been written: another is then the best that there is."""


def trial(kind: str, seed: int, folder: Path, straight: Straight) -> list[str]:
    """What a run of which the same thing happened to one to three times differs in from the straight one.

    What stays of its checkpoints, and whether they are written behind the training, is drawn too.
    """
    draw = random.Random(f"{kind} {seed}")
    rule = draw.choice(sorted(harness.RULES))
    settings = {**harness.RULES[rule], "save_async": draw.random() < 0.7}
    folder.mkdir()
    try:
        told = _tried(kind, draw, folder, straight, settings)
        if kind in SAVES_NO_OTHERS:
            missing = straight.stay[rule] - {path.name for path in find.checkpoints(folder)}
            told += [f"{name} is not there any more ({rule})" for name in sorted(missing)]
    finally:
        harness.unmount(folder)
    if not told:
        shutil.rmtree(folder)
    return told


def _tried(kind: str, draw: random.Random, folder: Path, straight: Straight, settings: Settings) -> list[str]:
    for _ in range(draw.choice([1, 1, 2, 3])):
        FAULTS[kind](folder, draw, straight, settings)
    last = folder / layout.folder_name(harness.STEPS)
    for _ in range(2):
        code = harness.finish(folder, settings=settings)
        if code != 0:
            return [f"exit code {code}: {folder.with_suffix('.txt').read_text()[-2000:]}"]
        if find.problem_with(last) is None:
            break
    found = harness.outcome(folder)
    told = harness.differences(without_best(found, kind), without_best(straight.outcome, kind))
    told += [f"left behind: {path.name}" for path in folder.glob(".*")]
    if kind in LOSES_BEST and find.problem_with(folder / found["best"][2]) is not None:
        told.append(f"the best checkpoint {found['best'][2]} is not there")
    return told


def without_best(outcome: dict[str, Any], kind: str) -> dict[str, Any]:
    if kind not in LOSES_BEST:
        return outcome
    return {name: value for name, value in outcome.items() if not name.startswith("best")}
