"""`burnish runs rerun`: the same command with the same settings, into a new folder."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from burnish.checkpoint import layout
from burnish.checkpoint.manifest import versions
from burnish.checkpoint.run_manifest import RunManifest
from burnish.core.errors import DataError, SettingError, UserError
from burnish.tasks.shards import are_shards, is_remote

from ..console import complain, say
from ..fingerprints import DATA_FILES, fingerprint
from ..run_folder import path_in

GIVEN = ("flag", "file")
"""Origins of settings that the user gave; all others follow from them."""
LEFT_OUT = ("output_dir", "overwrite_output_dir", "resume_from_checkpoint")
"""Settings that are about the old folder."""
USAGE = "For example: burnish runs rerun out --output_dir out-again --learning_rate 3e-5"


def rerun(words: Sequence[str]) -> int:
    """Starts a run again with the words that follow it in place of its own. Returns the exit code."""
    if not words or words[0].startswith("-"):
        raise SettingError(f"Which run? {USAGE}")
    place, overrides = Path(words[0]), list(words[1:])
    manifest = RunManifest.read(place)
    if manifest is None:
        raise UserError(f"{place} has no {layout.RUN}: what was run is not known, so it cannot be run again.")
    for warning in changes_since(manifest):
        complain(f"warning: {warning}")
    if manifest.task is None:
        say(_of_a_script(place, manifest))
        return 1
    folder = place if place.is_dir() else place.parent
    new = words_again(manifest, overrides, folder)
    say(f"burnish train {shlex.join(new)}\n")
    from ..train import command

    return command(new)


def words_again(manifest: RunManifest, overrides: Sequence[str], folder: Path) -> list[str]:
    """The words of `burnish train` that repeat a run: what was given for it, and after that what is given now."""
    words = [] if "task" in _names(overrides) else _word("task", manifest.task)
    for name, setting in manifest.settings.items():
        value = setting["value"]
        if setting["origin"] in GIVEN and name not in (*LEFT_OUT, *_names(overrides)) and value is not None:
            words += _word(name, _found_from_here(name, value, manifest.folder))
    if "output_dir" not in _names(overrides):
        words += _word("output_dir", str(_free(folder)))
    return [*words, *overrides]


def _names(words: Sequence[str]) -> set[str]:
    """The settings that are among some words; those that are switched off, too."""
    names = {word[2:].partition("=")[0].replace("-", "_") for word in words if word.startswith("--")}
    return names | {name.removeprefix("no_") for name in names}


def _word(name: str, value: Any) -> list[str]:
    text = value if isinstance(value, str) else json.dumps(value)
    return [f"--{name}={text}"] if text.startswith("-") or not text else [f"--{name}", text]


def _found_from_here(name: str, value: Any, folder: str) -> Any:
    """A path that was given in another folder, so that it is found from this one."""
    given = path_in(name, value)
    if given is None or Path(folder) == Path.cwd():
        return value
    path = Path(folder, given)
    return str(path) if path.exists() or (are_shards(str(value)) and not is_remote(str(value))) else value


def _free(folder: Path) -> Path:
    """The first of RUN-rerun, RUN-rerun-2 … that does not exist."""
    folder = folder if folder.name else folder.resolve()
    first = folder.with_name(f"{folder.name}-rerun")
    numbered = (folder.with_name(f"{first.name}-{number}") for number in range(2, 10_000))
    return next(path for path in (first, *numbered) if not path.exists())


def changes_since(manifest: RunManifest) -> list[str]:
    """What is not as it was, and may make the same command another run."""
    return [*_changed_data(manifest), *_changed_versions(manifest.versions), *_changed_code(manifest.git)]


def _changed_data(manifest: RunManifest) -> list[str]:
    warnings = []
    for name in DATA_FILES:
        was = manifest.data.get(name)
        if was is None:
            continue
        try:
            if not are_shards(was["path"]) and not Path(was["path"]).exists():
                warnings.append(f"--{name} {was['path']} is not there any more")
            elif fingerprint(was["path"])["sha256"] != was["sha256"]:
                warnings.append(f"--{name} {was['path']} has another content than it had")
        except DataError as error:  # it cannot be reached, or its address was signed
            warnings.append(f"--{name} {error}")
    return warnings


def _changed_versions(was: Mapping[str, str]) -> list[str]:
    now = versions()
    changed = [
        f"{name} {was[name]}, now {now.get(name, 'not installed')}" for name in was if was[name] != now.get(name)
    ]
    return [f"other versions: {'; '.join(changed)}"] if changed else []


def _changed_code(was: Mapping[str, Any] | None) -> list[str]:
    from burnish.tracking.surroundings import git_state

    if not was or not was.get("commit"):
        return []
    now = git_state(Path(was["folder"])) or {}
    if now.get("commit") != was["commit"]:
        there = (now.get("commit") or "no commit")[:10]
        return [f"{was['folder']} was at commit {was['commit'][:10]}, and is at {there} now"]
    if was.get("dirty"):
        return [f"{was['folder']} had changes beside commit {was['commit'][:10]} that are in no commit"]
    return [f"{was['folder']} has changes that are in no commit"] if now.get("dirty") else []


def _of_a_script(place: Path, manifest: RunManifest) -> str:
    started = f"cd {shlex.quote(manifest.folder)} && {manifest.command}" if manifest.folder else manifest.command
    return (
        f"{place} is a run of {manifest.script or 'your own code'}. What that does with a folder or a setting is not "
        "known here, and it may write into the same folder again, so it is not started. Its command was:\n"
        f"  {started}"
    )
