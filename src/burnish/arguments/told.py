"""Warnings that point at the line of the person who wrote it, not into this package."""

from __future__ import annotations

import sys
import warnings

_OURS = __name__.rpartition(".")[0]


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """`warnings.warn`, at the nearest caller outside burnish's arguments and the code that dataclass writes."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_inside(frame.f_globals.get("__name__", ""), frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_inside(module: str, file: str) -> bool:
    return module.startswith(_OURS) or module in ("dataclasses", "functools", "contextlib") or file == "<string>"
