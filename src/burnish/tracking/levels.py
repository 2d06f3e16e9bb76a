"""How much is said while the trainer works."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def message_level(args: Any) -> Iterator[None]:
    """The messages of burnish from `log_level` on (`log_level_replica` where this process does not log); "passive"
    leaves the level to the program. It is put back at the end.

    Warnings are those of all processes alike, and said once, by those that log: at the level "warning", other processes
    say what concerns them alone, which they say as an error."""
    messages = logging.getLogger("burnish")
    before = messages.level
    if (args.log_level if args.should_log else args.log_level_replica) != "passive":
        level = args.get_process_log_level()
        messages.setLevel(logging.ERROR if level == logging.WARNING and not args.should_log else level)
    try:
        yield
    finally:
        messages.setLevel(before)
