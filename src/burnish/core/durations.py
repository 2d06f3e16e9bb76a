"""Lengths of time as people write them: "2h", "90m", "1d6h"."""

from __future__ import annotations

import math
import re
from typing import Any

from .errors import SettingError

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
"""Seconds of each unit, the largest first."""
_WRITTEN = re.compile(r"\s*".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?)\s*{unit})?" for unit in UNITS))


def seconds_of(name: str, given: Any) -> float:
    """A length of time in seconds: a number of them, or text such as "2h", "90m", "1d6h", "45s" or "1h 30m".

    Raises:
        SettingError: it is none, or not above 0; `name` is that of the setting.
    """
    seconds = _number(given)
    if seconds is None:
        found = _WRITTEN.fullmatch(str(given).strip().lower())
        parts = found.groupdict() if found else {}
        seconds = sum(float(number) * UNITS[unit] for unit, number in parts.items() if number)
    if not 0 < seconds < math.inf:
        raise SettingError(
            f"`{name}` = {given!r}: expected a length of time above 0, such as '2h', '90m', '1d6h', '1h30m', '45s', or "
            "a number of seconds."
        )
    return seconds


def _number(given: Any) -> float | None:
    if isinstance(given, bool):
        return 0.0
    try:
        return float(given)
    except (TypeError, ValueError):
        return None


def in_words(seconds: float) -> str:
    """Seconds as a short text, in the two largest units that it has: "1d 6h", "2h", "1m 30s", "0.4s"."""
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    left = round(seconds)
    parts: list[str] = []
    for unit, size in UNITS.items():
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part)
