"""`burnish runs verify`: every file of checkpoints, against what was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.checkpoint import layout, manifest
from burnish.checkpoint.find import checkpoints
from burnish.checkpoint.verify import problems_with, unlisted, unreadable
from burnish.core.errors import SettingError, UserError

from ..console import say
from ..parse import Given
from .found import find_runs
from .table import size


@dataclass
class Verified:
    """One folder that was looked through."""

    folder: Path
    how: str
    """What it was held against."""
    problems: dict[str, str]
    """File to what is wrong with it; "" for the whole."""
    unlisted: list[str] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        found = {"folder": str(self.folder), "good": not self.problems, "checked": self.how}
        return {**found, "problems": self.problems, "unlisted": self.unlisted}

    def lines(self) -> list[str]:
        extra = dict.fromkeys(self.unlisted, "is not in the manifest: put there since, and harmless")
        told = {name or "the whole": problem for name, problem in self.problems.items()} | extra
        wide = max(map(len, told), default=0)
        verdict = "damaged" if self.problems else "good"
        return [f"{self.folder}  {verdict} ({self.how})", *(f"  {name:<{wide}}  {text}" for name, text in told.items())]


def verify(given: Given) -> int:
    """Says of each checkpoint whether it is good. Returns 1 if one is not."""
    if not given.words:
        raise SettingError("Which checkpoint, or which run? For example: burnish runs verify out/checkpoint-500")
    found, as_json = [], bool(given.values.get("json"))
    for word in given.words:
        for one in verified(Path(word)):
            found.append(one)
            if not as_json:
                say("\n".join(one.lines()))
    bad = sum(bool(one.problems) for one in found)
    if as_json:
        say(json.dumps([one.told() for one in found], indent=2))
    elif len(found) > 1:
        say(f"\n{len(found)} looked at: " + (f"{bad} damaged" if bad else "all good"))
    return 1 if bad else 0


def verified(place: Path) -> Iterator[Verified]:
    """A checkpoint, or the checkpoints and the final model of all runs in a folder and below.

    Raises:
        UserError: there is nothing of this kind.
    """
    if not place.is_dir():
        raise UserError(
            f"{place}: {'a file' if place.exists() else 'there is no such folder'}; a checkpoint is a folder."
        )
    if any((place / name).is_file() for name in (layout.MANIFEST, layout.BURNISH)) or layout.step_of(place) is not None:
        yield _checkpoint(place)
        return
    folders = [run.folder for run in find_runs(place)]
    if not folders and layout.holds_weights(place):
        folders = [place]
    if not folders:
        raise UserError(f"{place} is no checkpoint, and no run is in it or below.")
    for folder in folders:
        yield from map(_checkpoint, checkpoints(folder))
        if layout.holds_weights(folder):
            yield Verified(folder, "the final model, by whether it can be read", dict(unreadable(folder)))


def _checkpoint(folder: Path) -> Verified:
    problems = dict(problems_with(folder))
    if not (folder / layout.MANIFEST).exists():
        return Verified(folder, "without a manifest, by whether it can be read", problems)
    try:
        listed = manifest.read(folder)["files"].values()
        total = sum(one["bytes"] for one in listed)
    except (OSError, ValueError, KeyError, TypeError):
        return Verified(folder, "by its manifest", problems)
    return Verified(folder, f"{len(listed)} files, {size(total)}, sizes and SHA-256", problems, unlisted(folder))
