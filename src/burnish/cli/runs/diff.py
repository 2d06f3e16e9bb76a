"""`burnish runs diff`: in what two runs differ, and how both went."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.checkpoint import files, layout
from burnish.checkpoint.find import checkpoints
from burnish.core.errors import SettingError, UserError

from ..console import say
from ..parse import Given
from ..results import figure
from ..run_folder import path_in
from .found import FoundRun, is_run, read_run
from .table import fitted, width_of_terminal

Pair = tuple[Any, Any]
ALWAYS_DIFFERENT = ("output_dir",)
"""Settings in which two runs differ that are told apart by them."""


def diff(given: Given) -> int:
    """Prints both runs side by side."""
    if len(given.words) != 2:
        raise SettingError("Two runs are compared. For example: burnish runs diff out/first out/second")
    first, second = (_run(Path(word)) for word in given.words)
    parts = compared(first, second)
    if given.values.get("json"):
        say(json.dumps({"runs": [first.told(), second.told()], **_as_json(parts)}, indent=2))
        return 0
    names = _names(first.folder, second.folder)
    same = [title for title, pairs in parts.items() if not pairs]
    if same:
        say(f"no difference that is known: {', '.join(same)}\n")
    say("\n\n".join("\n".join([title, *_lines(title, pairs, names)]) for title, pairs in parts.items() if pairs))
    for run in (first, second):
        if run.manifest is None:
            say(f"\n{run.folder} has no {layout.RUN}: of its settings, versions and data only what is shown is known.")
    return 0


def _run(place: Path) -> FoundRun:
    folder = place.parent if place.name == layout.RUN or layout.step_of(place) is not None else place
    if not is_run(folder):
        raise UserError(f"{place} is no run: it has neither {layout.RUN} nor checkpoints.")
    return read_run(folder)


def compared(first: FoundRun, second: FoundRun) -> dict[str, dict[str, Pair]]:
    """What differs, by title and name; of results also what is the same."""
    runs = (first, second)
    manifests = [run.manifest for run in runs]
    known = [manifest.__dict__ if manifest is not None else {} for manifest in manifests]
    code, machine = ([part.get(name) or {} for part in known] for name in ("git", "hardware"))
    model = [_wherever(part.get("model") or {}, "name_or_path", part.get("folder")) for part in known]
    data = [{name: _content(value) for name, value in (part.get("data") or {}).items()} for part in known]
    differing = {
        "versions": _differing(*[part.get("versions") or {} for part in known]),
        "data": _differing(*data),
        "model": _differing(*model),
        "code": _differing(*code),
        "machine": _differing(*machine),
    }
    settings = _differing_settings(*map(_comparable, runs))
    return {"settings": settings, **differing, "results": _side_by_side(*map(results_of, runs))}


def settings_of(run: FoundRun) -> dict[str, dict[str, Any]]:
    """From the manifest; of a run that has none, from its newest checkpoint, which does not tell origins."""
    if run.manifest is not None:
        task = {"task": {"value": run.manifest.task, "origin": ""}} if run.manifest.task else {}
        return {**task, **run.manifest.settings}
    for checkpoint in reversed(checkpoints(run.folder)):
        with contextlib.suppress(OSError, ValueError):
            values = files.read_json(checkpoint / layout.TRAINING_ARGS)
            return {name: {"value": value, "origin": "?"} for name, value in values.items()}
    return {}


def _comparable(run: FoundRun) -> dict[str, dict[str, Any]]:
    """Settings as they are compared. Data files are compared by their content; a path from where the run was started
    and one from elsewhere may be one place."""
    settings = settings_of(run)
    if run.manifest is None:
        return settings
    told = {name: setting for name, setting in settings.items() if name not in run.manifest.data}
    inputs = [name for name, setting in told.items() if path_in(name, setting.get("value"))]
    places = {name: _wherever(told[name], "value", run.manifest.folder) for name in inputs}
    return {**told, **places}


def _wherever(values: Mapping[str, Any], name: str, folder: str | None) -> dict[str, Any]:
    """The same with the path under `name` in full, where it is one."""
    value = values.get(name)
    path = Path(folder, value) if folder and isinstance(value, str) else None
    return {**values, name: str(path)} if path is not None and path.exists() else dict(values)


def results_of(run: FoundRun) -> dict[str, Any]:
    """How a run went, as far as it is known."""
    result = run.manifest.result if run.manifest is not None else {}
    best = run.best or {}
    return {
        "state": run.state,
        "step": run.step,
        "of steps": run.max_steps,
        "epoch": result.get("epoch"),
        "seconds": result.get("seconds"),
        "train_loss": result.get("train_loss"),
        f"best {best.get('metric', '')}".strip(): best.get("value"),
        "best at step": best.get("step"),
        # The epoch in here is that of the last evaluation, which after loading the best model is an earlier one.
        **{name: value for name, value in (result.get("metrics") or {}).items() if name != "epoch"},
    }


def _content(value: Any) -> Any:
    """Of a file its content, which its path is no part of; it is named beside."""
    if not isinstance(value, Mapping) or "sha256" not in value:
        return value
    return _File(value)


class _File(dict[str, Any]):
    """Equal to another with the same content."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _File) and self["sha256"] == other["sha256"]

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self['path']} ({self['bytes']:,} bytes, SHA-256 {self['sha256'][:8]}…)"


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Pair]:
    """Names that both know and that differ, and those that only one of two knows that know any."""
    if not first or not second:
        return {}
    names = dict.fromkeys([*first, *second])
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}


def _differing_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Pair]:
    pairs = _differing(first, second)
    return {
        name: (one, other)
        for name, (one, other) in sorted(pairs.items())
        if (one or {}).get("value") != (other or {}).get("value") and name not in ALWAYS_DIFFERENT
    }


def _side_by_side(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Pair]:
    names = dict.fromkeys([*first, *second])
    pairs = {name: (first.get(name), second.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair != (None, None)}


def _lines(title: str, pairs: Mapping[str, Pair], names: tuple[str, str]) -> list[str]:
    width = width_of_terminal()
    if title == "settings":
        rows = [[name, *_setting(pair)] for name, pair in pairs.items()]
        return fitted(["", *names, "origin"], rows, width)
    shown = _figure if title == "results" else lambda name, value: _text(value)
    return fitted(
        ["", *names], [[name, shown(name, one), shown(name, other)] for name, (one, other) in pairs.items()], width
    )


def _setting(pair: Pair) -> list[str]:
    values = ["-" if one is None else _text(one["value"]) for one in pair]
    origins = ["-" if one is None else one["origin"] or "-" for one in pair]
    return [*values, origins[0] if origins[0] == origins[1] else " / ".join(origins)]


def _figure(name: str, value: Any) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if name == "seconds" and is_number:
        return f"{value:.1f}"
    return figure(name, value) if is_number else _text(value)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, (str, _File)):
        return str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(part)}" for name, part in value.items() if part is not None)
    return json.dumps(value)


def _names(first: Path, second: Path) -> tuple[str, str]:
    """The shortest that tell the two apart."""
    return (first.name, second.name) if first.name != second.name else (str(first), str(second))


def _as_json(parts: Mapping[str, Mapping[str, Pair]]) -> dict[str, Any]:
    return {title: {name: list(pair) for name, pair in pairs.items()} for title, pairs in parts.items()}
