"""Which process writes a run or a folder, so that others can tell whether it lives."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote


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


def label() -> str:
    """This process as the end of a file's name: ``<pid>@<began>@<host>``."""
    process = this_process()
    return f"{process['pid']}@{process['began'] or ''}@{quote(process['host'], safe='')}"


def labelled(name: str) -> dict[str, Any] | None:
    """The process in a name that ends with a `label`, or with ``-<pid>`` of this machine; None where there is none."""
    found = re.search(r"-(\d+)(?:@(\d*)@([^@/]*))?$", name)
    if found is None:
        return None
    number, began, host = found.groups()
    return {
        "host": platform.node() if host is None else unquote(host),
        "pid": int(number),
        "began": int(began) if began else None,
    }


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
