"""Where numbers go besides the console and the run's own files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .declare import about


# The order in a union matters to `transformers.HfArgumentParser`, which takes the second type of three.
@dataclass
class TrackerFields:
    report_to: list[str] | str | None = field(
        default="none",
        metadata=about("Trackers to report to, such as tensorboard or wandb; all: every one that is installed; none."),
    )
    run_name: str | None = field(default=None, metadata=about("Name of the run in trackers."))
    project: str = field(default="huggingface", metadata=about("Name of the project in trackers that have projects."))
    trackio_space_id: str | None = field(
        default=None, metadata=about("Space of the hub in which Trackio shows the run, as user/name.")
    )
    trackio_bucket_id: str | None = field(
        default=None, metadata=about("Bucket of the hub in which Trackio stores the run.")
    )
    trackio_static_space_id: Literal[False] | str | None = field(
        default=None, metadata=about("Read-only Space of the hub for the finished run, as user/name; False: none.")
    )
