"""Which checkpoints stay."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from . import staging
from .find import checkpoints
from .run_id import run_of
from .verify import problem_with

logger = logging.getLogger(__name__)


def prune(output_dir: Path | str, limit: int | None, keep: Collection[Path], run_id: str) -> list[Path]:
    """Deletes the oldest checkpoints of the run `run_id` beyond `limit`, and returns those that went.

    The newest good one and those in `keep` (the best, or one that is in use) always stay; they count towards the
    limit. Checkpoints of other runs neither count nor go. A folder that cannot be deleted is named in a warning.
    """
    if limit is None or limit <= 0:
        return []
    own = [path for path in checkpoints(output_dir) if run_of(path) == run_id]
    newest = next((path for path in reversed(own) if problem_with(path, checksums=False) is None), None)
    kept = {path.resolve() for path in [*keep, *([newest] if newest else [])]}
    surplus = [path for path in own if path.resolve() not in kept][: max(0, len(own) - limit)]
    return [path for path in surplus if _deleted(path)]


def _deleted(checkpoint: Path) -> bool:
    try:
        staging.discard(checkpoint)
    except OSError as error:
        logger.warning("%s could not be deleted: %s", checkpoint, error)
        return False
    return True
