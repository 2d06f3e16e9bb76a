"""Uploads to the hub."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..choices import HubStrategy
from .declare import about


@dataclass
class HubFields:
    push_to_hub: bool = field(
        default=False,
        metadata=about(
            "Upload the model to the hub, behind the training. The repository is made before the first step."
        ),
    )
    hub_model_id: str | None = field(
        default=None,
        metadata=about(
            "Repository to upload to, as owner/name; a name alone is one of yours. Not given: called as `output_dir`."
        ),
    )
    hub_strategy: HubStrategy | str = field(
        default="every_save",
        metadata=about(
            "What to upload: the model at the `end`; also at `every_save`; also the newest `checkpoint`, as "
            "last-checkpoint, to go on from elsewhere; or `all_checkpoints` under their names."
        ),
    )
    # Left out of the repr that dataclass writes for a subclass, so that no log shows it.
    hub_token: str | None = field(
        default=None,
        repr=False,
        metadata=about("Token that may write. Not given: HF_TOKEN, or what `hf auth login` has left on this machine."),
    )
    hub_private_repo: bool | None = field(
        default=None, metadata=about("Make a new repository private. Not given: as the owner's default.")
    )
    hub_always_push: bool = field(
        default=False,
        metadata=about(
            "Upload every checkpoint, however long it waits. Otherwise a newer one takes the place of one that waits."
        ),
    )
    hub_revision: str | None = field(
        default=None, metadata=about("Branch to upload to; made where it is not there. Not given: the main one.")
    )
