"""The operators that DeepSpeed compiles when they are first used: which a run needs, and whether a build hangs.

torch guards the build of an extension by a file called `lock`. A build that was killed leaves it, and whoever needs the
extension next waits for it for ever, without a word.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.core.errors import SettingError

from .deepspeed_config import offloads

logger = logging.getLogger(__name__)

LOCK = "lock"

YOUNG = 60.0
"""Seconds in which a build may have its lock and no compiler at work yet."""


def require_package() -> None:
    """Raises `SettingError` where DeepSpeed is not installed."""
    found = importlib.util.find_spec("deepspeed")
    if found is None or found.origin is None:  # a folder of this name beside a script is no package
        raise SettingError(
            "`deepspeed` is set, and the package is not installed: pip install 'burnish[deepspeed]', or leave the "
            "setting out."
        )


def operators(config: Mapping[str, Any], on_cpu: bool) -> list[str]:
    """Names of what is compiled for a run with this configuration."""
    needed = ["deepspeed_shm_comm"] if on_cpu else []
    optimizer = config.get("optimizer") or {}
    if str(optimizer.get("type", "")).lower() in ("adam", "adamw") and not (optimizer.get("params") or {}).get(
        "torch_adam"
    ):
        needed.append("cpu_adam" if offloads(config, "optimizer") else "fused_adam")
    zero = config.get("zero_optimization", {})
    if any((zero.get(f"offload_{what}") or {}).get("device") == "nvme" for what in ("optimizer", "param")):
        needed.append("async_io")
    return needed


def check_builds(names: list[str]) -> None:
    """Says what will be compiled.

    Raises:
        SettingError: a build was broken off, and would be waited for without end.
    """
    for name in names:
        folders = [folder for root in _roots() for folder in (root / name, *root.glob(f"*/{name}"))]
        for folder in folders:
            if _is_left(folder / LOCK):
                raise SettingError(
                    f"A build of DeepSpeed's operator {name} was broken off and left {folder / LOCK}: the next one "
                    f"would wait for it without end. Delete the folder and start again: rm -r {folder}"
                )
        if not any(file for folder in folders for file in folder.glob("*.so")):
            logger.warning("DeepSpeed compiles its operator %s now, once on this machine; that takes minutes.", name)


def _roots() -> list[Path]:
    from torch.utils import cpp_extension

    given = os.environ.get("TORCH_EXTENSIONS_DIR")
    return [Path(given)] if given else [Path(cpp_extension.get_default_build_root())]


def _is_left(lock: Path) -> bool:
    """Whether nobody is building any more who could take the lock away."""
    try:
        age = time.time() - lock.stat().st_mtime
    except OSError:
        return False
    return age > YOUNG and not _somebody_works_in(lock.parent)


def _somebody_works_in(folder: Path) -> bool:
    """Whether a process has this folder as its own, as a compiler has; unknown counts as yes."""
    processes = Path("/proc")
    if not (processes / "self" / "cwd").exists():
        return True
    return any(_works_in(process / "cwd", folder.resolve()) for process in processes.glob("[0-9]*"))


def _works_in(place: Path, folder: Path) -> bool:
    try:
        return place.resolve() == folder
    except OSError:  # it has ended, or is somebody else's
        return False
