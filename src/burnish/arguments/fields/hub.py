"""Uploads to the hub."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..choices import HubStrategy
from .declare import about


@dataclass
class HubFields:
    push_to_hub: bool = field(default=False, metadata=about("Upload the model as it is saved."))
    hub_model_id: str | None = field(default=None, metadata=about("Repository to upload to, as user/name."))
    hub_strategy: HubStrategy | str = field(default="every_save", metadata=about("What to upload, and when."))
    # Left out of the repr that dataclass writes for a subclass, so that no log shows it.
    hub_token: str | None = field(default=None, repr=False, metadata=about("Token for uploads."))
    hub_private_repo: bool | None = field(
        default=None, metadata=about("Make a new repository private. Not given: as the owner's default.")
    )
    hub_always_push: bool = field(default=False, metadata=about("Upload even when the upload before is not done."))
    hub_revision: str | None = field(default=None, metadata=about("Branch to upload to."))
