"""Lengths of time as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from burnish.core.durations import in_words, seconds_of
from burnish.core.errors import SettingError


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("2h", 7200), ("90m", 5400), ("1d6h", 108_000), ("1h 30m", 5400), ("45s", 45), ("0.5h", 1800), (" 2H ", 7200),
        (7200, 7200), (1.5, 1.5), ("7200", 7200), ("1e3", 1000), ("1d 2h 3m 4s", 93_784),
    ],
)  # fmt: skip
def test_forms(given: Any, seconds: float) -> None:
    assert seconds_of("max_time", given) == seconds


@pytest.mark.parametrize(
    "given", ["", "h", "2x", "-3", 0, -1.0, True, "nan", "inf", "2h3d", "1h 30", "two hours", "0h", [2]]
)
def test_what_is_none_is_refused_with_the_forms(given: Any) -> None:
    with pytest.raises(SettingError, match=r"`max_time` = .*expected a length of time.*'2h', '90m', '1d6h'"):
        seconds_of("max_time", given)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0.4s"), (3, "3s"), (59.7, "1m"), (90, "1m 30s"), (5400, "1h 30m"), (7200, "2h"), (7205, "2h"),
     (108_000, "1d 6h"), (90_061, "1d 1h")],
)  # fmt: skip
def test_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
