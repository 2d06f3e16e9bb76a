"""The manifest of a run: what it is and how it went, in `run.json` in its folder.

Written when the run begins and completed when it ends, by whoever trains: a script or the command line.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from burnish.core.errors import UserError

from . import files, layout

RUNNING, FINISHED, STOPPED, FAILED = "running", "finished", "stopped", "failed"


@dataclass
class RunManifest:
    """What `run.json` holds. All values are those of JSON; times are UTC, ISO 8601."""

    run_id: str = ""
    """Also in the run's checkpoints. A run that goes on keeps it."""
    state: str = RUNNING
    """"running", "finished", "stopped" (by a signal or Ctrl-C) or "failed"."""
    reason: str | None = None
    """Why it stopped, failed, or finished before its last step."""
    started: str = ""
    ended: str | None = None
    resumed: list[dict[str, Any]] = field(default_factory=list)
    """One {"time", "step", "from"} for each time that it went on from a checkpoint."""
    task: str | None = None
    """Of `burnish train`; None for a script of the user's own."""
    command: str = ""
    """Without secrets."""
    script: str | None = None
    """The file that trained; None for `burnish train` and for a notebook."""
    folder: str = ""
    """Where the command was given."""
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name to {"value", "origin"}; the origin is "default", "file", "flag", "argument", "derived" (it follows from
    other settings), or why burnish chose it. Without tokens."""
    git: dict[str, Any] | None = None
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Files as {"path", "bytes", "sha256"} under their setting, datasets as {"rows", "fingerprint"}."""
    model: dict[str, Any] = field(default_factory=dict)
    """Of the weights that the run began with."""
    process: dict[str, Any] = field(default_factory=dict)
    max_steps: int | None = None
    result: dict[str, Any] = field(default_factory=dict)
    """{"step", "epoch", "seconds", "train_loss", "best", "metrics"}, once it has ended."""
    format_version: int = layout.FORMAT_VERSION

    @property
    def finished(self) -> str | None:
        """When it ended with all its results; None for a run that did not."""
        return self.ended if self.state == FINISHED else None

    def write(self, folder: Path | str) -> None:
        """Writes the file whole or not at all; makes the folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files.replace_json(folder / layout.RUN, asdict(self))

    @classmethod
    def read(cls, place: Path | str) -> RunManifest | None:
        """The manifest of a folder, or in a file of that kind; None where there is none.

        Raises:
            UserError: it cannot be read.
        """
        path = Path(place)
        path = path / layout.RUN if path.is_dir() else path
        if not path.is_file():
            return None
        try:
            content = files.read_json(path)
            known = {part.name for part in fields(cls)}
            return cls(**{name: value for name, value in content.items() if name in known})
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}), so what ran in this folder is not known.") from None


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
