"""Which checkpoints stay."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from . import in_use, layout, manifest, staging
from .find import checkpoints
from .run_id import run_of
from .verify import problem_with

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Retention:
    """What stays of a run's checkpoints: all, where nothing is said. Whatever is said, the newest good one stays.

    Args:
        total: this many at most, the newest and the best among them; milestones stay besides.
        last: the newest so many.
        best: the best so many by `metrics`.
        every_steps: milestones: the first one at or after each multiple of this number of steps.
        every_minutes: milestones: the first one that was written in each so many minutes of the clock.
        metrics: the value of the metric at each step that was evaluated.
        greater_is_better: how they compare. Of equal ones the earlier is better; NaN is never among the best.
    """

    total: int | None = None
    last: int | None = None
    best: int | None = None
    every_steps: int | None = None
    every_minutes: float | None = None
    metrics: Mapping[int, float] = field(default_factory=dict)
    greater_is_better: bool = False

    @property
    def keeps_all(self) -> bool:
        return not any((self.total, self.last, self.best, self.every_steps, self.every_minutes))

    def kept(self, found: list[Path], always: Collection[Path]) -> set[Path]:
        """Those of these checkpoints, oldest first, that stay. One that is damaged counts nowhere: where the n newest
        stay, n good ones do."""
        newest_first, good = found[::-1], _goodness(found)
        milestones = self._milestones(found, good)
        kept = {path for path in found if path in always} | milestones
        kept |= _until(newest_first, self.last or 1, good)
        kept |= _until(self.by_metric(found), self.best or 0, good)
        if self.total:
            limited = [path for path in newest_first if path not in milestones]
            room = self.total - sum(good[path] for path in limited if path in kept)
            kept |= _until((path for path in limited if path not in kept), room, good)
        return kept

    def by_metric(self, found: Iterable[Path]) -> list[Path]:
        """Those that were evaluated, best first, each once."""
        sign = -1 if self.greater_is_better else 1
        values = {path: self.metrics.get(_step(path), math.nan) for path in found}
        ranked = [(sign * value, _step(path), path) for path, value in values.items() if not math.isnan(value)]
        return [path for *_, path in sorted(ranked)]

    def _milestones(self, found: list[Path], good: Mapping[Path, bool]) -> set[Path]:
        by_steps, by_minutes = self.every_steps, self.every_minutes
        kept: set[Path] = set()
        if by_steps:
            kept |= _first_of_each(found, good, lambda path: _step(path) // by_steps)
        if by_minutes:
            kept |= _first_of_each(found, good, lambda path: _written(path) // (by_minutes * 60))
        return kept


def prune(output_dir: Path | str, retention: Retention, always: Collection[Path], run_id: str) -> list[Path]:
    """Deletes the checkpoints of the run `run_id` that are not to stay, and returns those that went.

    Those in `always` stay, and those that somebody reads (see `in_use`). Checkpoints of other runs neither count nor
    go. What cannot be read or deleted is told in a warning, and goes another time: a checkpoint too many is no failed
    save.
    """
    if retention.keeps_all:
        return []
    try:
        return _pruned(output_dir, retention, always, run_id)
    except OSError as error:
        logger.warning(
            "The older checkpoints in %s stay for now: they could not be looked through: %s", output_dir, error
        )
        return []


def _pruned(output_dir: Path | str, retention: Retention, always: Collection[Path], run_id: str) -> list[Path]:
    own = {path.resolve(): path for path in of_run(output_dir, run_id)}
    kept = retention.kept(list(own), {path.resolve() for path in always})
    return [path for place, path in own.items() if place not in kept and _deleted(path)]


def of_run(output_dir: Path | str, run_id: str) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return [path for path in checkpoints(output_dir) if run_of(path) == run_id]


def _deleted(checkpoint: Path) -> bool:
    try:
        with in_use.claimed(checkpoint) as nobody_reads_it:
            if not nobody_reads_it:
                logger.info("%s is being read and stays for now.", checkpoint)
                return False
            staging.discard(checkpoint)
    except OSError as error:
        logger.warning("%s could not be deleted: %s", checkpoint, error)
        return False
    return True


def _goodness(found: list[Path]) -> dict[Path, bool]:
    return {path: problem_with(path, checksums=False) is None for path in found}


def _until(paths: Iterable[Path], number: int, good: Mapping[Path, bool]) -> set[Path]:
    """The first of these, until `number` of them are good."""
    taken: set[Path] = set()
    for path in paths:
        if number <= 0:
            break
        taken.add(path)
        number -= good[path]
    return taken


def _first_of_each(found: list[Path], good: Mapping[Path, bool], period: Callable[[Path], float]) -> set[Path]:
    """The first good checkpoint of each period, but for period 0, in which nothing is due yet."""
    taken: set[Path] = set()
    done = {0.0}
    for path in found:
        number = period(path)
        if number not in done:
            taken.add(path)
            done |= {number} if good[path] else set()
    return taken


def _step(path: Path) -> int:
    return layout.step_of(path) or 0


def _written(path: Path) -> float:
    """Seconds since 1970; 0 for one that does not say."""
    try:
        return datetime.fromisoformat(manifest.read(path)["written"]).timestamp()
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0
