"""Which process writes a run, so that others can tell whether it lives."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def this_process() -> dict[str, Any]:
    """``{"host", "pid", "began"}``; `began` tells a process from a later one of the same number."""
    return {"host": platform.node(), "pid": os.getpid(), "began": _began(os.getpid())}


def is_alive(process: Mapping[str, Any]) -> bool | None:
    """Whether a process of `this_process` lives on; None where that cannot be told from here (another machine)."""
    if process.get("host") != platform.node():
        return None
    number = int(process.get("pid") or 0)
    if number <= 0 or not _exists(number):
        return False
    return process.get("began") in (None, _began(number))


def _exists(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _began(number: int) -> int | None:
    """Clock ticks from the start of the machine to that of the process; None where the system does not say."""
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name in brackets before may hold anything
    return None if fields[0] in ("Z", "X") else int(fields[19])
