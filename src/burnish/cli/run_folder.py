"""The folder of a run: what a second run there may do."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.checkpoint.run_manifest import RunManifest
from burnish.core.errors import SettingError, UserError

from .console import table_lines
from .folder_lock import check_free
from .run_changes import LENGTH_OF_RUN, Change, differences


class AlreadyFinished(UserError):
    """The folder holds the very run that was asked for, with all its results."""


@dataclass(frozen=True)
class Decision:
    """What is to happen with the folder."""

    resume_from: str | None = None
    """Checkpoint to go on from."""
    move_aside: bool = False
    note: str | None = None
    changes: tuple[Change, ...] = ()
    """Settings in which a resumed run differs from what it was, where the user asked for that."""


def decide(folder: Path, record: RunManifest, overwrite: bool, resume: str | bool | None) -> Decision:
    """What a run may do in its folder: start, go on, or move what is there aside. Raises `UserError` otherwise.

    Args:
        folder: the output folder; it need not exist.
        record: the run that is about to start.
        overwrite: `--overwrite_output_dir`.
        resume: `--resume_from_checkpoint`: a folder, True for the newest checkpoint, "auto", or nothing.
    """
    _check_writable(folder)
    check_free(folder)
    if overwrite:
        if resume:
            raise SettingError(
                "--overwrite_output_dir starts anew and --resume_from_checkpoint goes on: give one of the two."
            )
        _check_holds_no_input(folder, record)
        return Decision(move_aside=_is_occupied(folder))
    earlier = RunManifest.read(folder)
    if resume and resume != "auto":
        return _explicit_resume(folder, record, earlier, resume)
    if earlier is None:
        if _is_occupied(folder):
            raise UserError(
                f"{folder} is not empty and holds no run of burnish. Choose another --output_dir, or give "
                "--overwrite_output_dir to move what is there aside."
            )
        return Decision()
    if earlier.task is None:
        raise UserError(
            f"{folder} holds a run of your own script ({earlier.command}). Choose another --output_dir, or give "
            "--overwrite_output_dir to move what is there aside."
        )
    return _second_run(folder, record, earlier)


def check_only_measured(folder: Path, model: str, overwrite: bool) -> None:
    """A run that trains nothing writes its numbers beside the model it measures, or into a folder of their own, never
    over the results of another model. Raises `UserError`."""
    _check_writable(folder)
    if overwrite:
        raise SettingError("--overwrite_output_dir starts a training anew; without --do_train there is none.")
    if RunManifest.read(folder) is None or folder.resolve() in (Path(model).resolve(), *Path(model).resolve().parents):
        return
    raise UserError(
        f"{folder} holds the results of another model than {model}. Choose another --output_dir, or measure the model "
        f"of that folder: --model_name_or_path {folder}"
    )


def _explicit_resume(folder: Path, record: RunManifest, earlier: RunManifest | None, resume: str | bool) -> Decision:
    from burnish.checkpoint.find import resolve

    checkpoint = resolve(True if _is_true(resume) else resume, str(folder))
    if checkpoint is None:
        raise UserError(f"There is no checkpoint in {folder} to resume from.")
    changes = tuple(differences(earlier, record)) if earlier else ()
    return Decision(str(checkpoint), note=_resuming(folder, Path(checkpoint)), changes=changes)


def _second_run(folder: Path, record: RunManifest, earlier: RunManifest) -> Decision:
    """The folder has a run already: it is resumed if it is this one and was interrupted."""
    from burnish.checkpoint.find import resolve

    changes = differences(earlier, record)
    if earlier.finished and not changes:
        raise AlreadyFinished(_finished_already(folder, earlier))
    checkpoint = resolve("auto", str(folder))
    if checkpoint is None and not earlier.finished:
        return Decision(note=f"{folder} holds a run that stopped before its first checkpoint; starting anew.")
    if changes:
        raise UserError(_another_run(folder, earlier, changes))
    return Decision(str(checkpoint), note=_resuming(folder, Path(str(checkpoint))))


def _is_true(resume: str | bool) -> bool:
    return resume is True or str(resume).lower() == "true"


def _resuming(folder: Path, checkpoint: Path) -> str:
    return f"resuming {folder} from {checkpoint.name}"


def _finished_already(folder: Path, earlier: RunManifest) -> str:
    return (
        f"{folder} holds this run already, finished {_day(earlier.finished)}.\n"
        f"  to use it:            burnish predict {shlex.quote(str(folder))} FILE\n"
        "  for more epochs:      a higher --num_train_epochs, and --resume_from_checkpoint\n"
        "  to train again:       another --output_dir, or --overwrite_output_dir (moves the folder aside)"
    )


def _another_run(folder: Path, earlier: RunManifest, changes: list[Change]) -> str:
    state = f"finished {_day(earlier.finished)}" if earlier.finished else "interrupted"
    table = table_lines(["setting", "was", "now"], [[c.name, c.was, c.now] for c in changes])
    ways = [
        "  to keep both:         another --output_dir",
        "  to start anew:        --overwrite_output_dir (moves the folder aside)",
    ]
    if all(change.name in LENGTH_OF_RUN for change in changes):
        ways.insert(0, "  for more epochs:      --resume_from_checkpoint")
    else:
        ways.append("  to go on regardless:  --resume_from_checkpoint")
    lines = [f"{folder} holds another run ({state}):", *(f"  {line}" for line in table), *ways]
    return "\n".join(lines)


INPUTS = (
    *("train_file", "validation_file", "test_file", "model_name_or_path", "config_name", "tokenizer_name", "cache_dir"),
    *("deepspeed", "fsdp_config", "generation_config"),
)
"""Settings that may be the path of something that a run reads."""


def path_in(name: str, value: Any) -> str | None:
    """What a setting says as the path of an input; None where it is none, such as a configuration given as JSON."""
    is_text = isinstance(value, (str, Path)) and str(value) and not str(value).lstrip().startswith("{")
    return str(value) if name in INPUTS and is_text else None


def _check_holds_no_input(folder: Path, record: RunManifest) -> None:
    """Refuses to move away the folder one stands in, or what the run itself reads."""
    values = {name: path_in(name, record.settings.get(name, {}).get("value")) for name in INPUTS}
    inputs = {f"--{name} {value}": Path(value) for name, value in values.items() if value}
    for what, path in {"the folder you are in": Path.cwd(), **inputs}.items():
        if path.exists() and folder.resolve() in (path.resolve(), *path.resolve().parents):
            raise UserError(
                f"--overwrite_output_dir would move {folder} aside, and with it {what}. Choose another --output_dir."
            )


def move_aside(folder: Path) -> Path:
    """Renames the folder to the first free of `out.1`, `out.2` …; nothing is deleted."""
    number = 1
    while (target := folder.with_name(f"{folder.name}.{number}")).exists():
        number += 1
    folder.rename(target)
    return target


def _day(moment: str | None) -> str:
    return (moment or "").replace("T", " ").replace("+00:00", " UTC")


def _is_occupied(folder: Path) -> bool:
    return folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir())


def _check_writable(folder: Path) -> None:
    """Refuses an output folder that cannot be made or written to, before anything is computed."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise UserError(f"--output_dir {folder}: {existing} is a file. Choose another --output_dir.")
    if not os.access(existing, os.W_OK):
        raise UserError(f"--output_dir {folder}: {existing} is not writable. Choose another --output_dir.")
