"""What a run ran in: its command line, the state of the code beside it, the machine. No environment variables."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from burnish.core.secrets import hidden_in_words

_GIT_SECONDS = 1.0  # a larger repository than one that answers in this time goes without


def command_line() -> str:
    """The words that started this process, as one would type them; secrets are masked."""
    return shlex.join(hidden_in_words(sys.orig_argv))


def script() -> Path | None:
    """The file that Python was started with; None in a notebook and at a prompt."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if path is None or "ipykernel" in Path(path).parts or not Path(path).is_file():
        return None
    return Path(path).resolve()


def git_state(folder: Path) -> dict[str, Any] | None:
    """``{"folder", "commit", "branch", "dirty"}`` of the repository that `folder` is in; None where it is in none.

    Dirty means that files which git knows are not as in the commit. One call of git, given up after a second; commit
    and dirty are None then.
    """
    top = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)
    if top is None:
        return None
    state: dict[str, Any] = {"folder": str(top), "commit": None, "branch": None, "dirty": None}
    words = ["git", "--no-optional-locks", "-C", str(top), "status", "--porcelain=v2", "--branch"]
    try:
        done = subprocess.run(
            [*words, "--untracked-files=no"], capture_output=True, text=True, timeout=_GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return state
    lines = done.stdout.splitlines()
    told = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# "))
    commit, branch = told.get("branch.oid"), told.get("branch.head")
    return {
        **state,
        "commit": commit if commit != "(initial)" else None,
        "branch": branch if branch != "(detached)" else None,
        "dirty": any(not line.startswith("#") for line in lines),
    }


def hardware() -> dict[str, Any]:
    """The processor, the cores that this process may use, the memory (bytes), and the accelerators that are in use."""
    return {**_machine(), "accelerators": _accelerators()}


@functools.cache
def _machine() -> dict[str, Any]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "host": platform.node(),
        "system": platform.platform(terse=True),
        "processor": _processor(),
        "cores": usable,
        "memory_bytes": _memory(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            start = file.read(8192)  # of the first core; the file is slow to read where there are many
    except OSError:
        start = ""
    for line in start.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # Windows
        return None


def _accelerators() -> list[dict[str, Any]]:
    """Those of CUDA, once the run has woken it; looking would wake it otherwise, which costs memory."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
        return [{"name": device.name, "memory_bytes": device.total_memory} for device in found]
    if torch.backends.mps.is_available():
        return [{"name": "Apple GPU", "memory_bytes": None}]
    return []
