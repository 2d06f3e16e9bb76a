"""Logged values as JSON, and what a dict of metrics is about."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MEASURES = ("runtime", "samples_per_second", "steps_per_second", "tokens_per_second")
"""Ends of the keys that say how long an evaluation or a training took."""


def plain(value: Any) -> Any:
    """A value that `json` can write: numpy and torch scalars as numbers, arrays and tensors as lists, others as text.

    NaN and infinities stay what they are; `record` takes care of them.
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    to_list = getattr(value, "tolist", None)  # numpy and torch, scalars and arrays alike
    return plain(to_list()) if callable(to_list) else str(value)


def record(values: Mapping[str, Any]) -> dict[str, Any]:
    """A dict that is valid JSON. JSON has no NaN: such a number becomes null, and "nonfinite" says which it was.

    ``{"loss": nan}`` becomes ``{"loss": None, "nonfinite": {"loss": "nan"}}``, so that every JSON reader takes the
    line, a table of the column stays numeric, and nothing is lost.
    """
    nonfinite: dict[str, str] = {}
    content = {str(key): _finite(plain(value), str(key), nonfinite) for key, value in values.items()}
    return {**content, "nonfinite": nonfinite} if nonfinite else content


def _finite(value: Any, place: str, nonfinite: dict[str, str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        nonfinite[place] = str(value)
        return None
    if isinstance(value, list):
        return [_finite(item, f"{place}[{i}]", nonfinite) for i, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _finite(item, f"{place}.{key}", nonfinite) for key, item in value.items()}
    return value


def split_of(metrics: Mapping[str, Any]) -> str | None:
    """The prefix that the keys of a finished pass share: "eval", "eval_german", "test", "train".

    None for a log of training as it goes. Read from the key of the time that was taken, which such a dict has.
    """
    if "loss" in metrics:
        return None
    timed = next((key[: -len("_runtime")] for key in metrics if key.endswith("_runtime")), None)
    if timed is None and any(key.startswith("eval_") for key in metrics):
        return "eval"
    return timed


class Announced:
    """An evaluation is first logged and then announced with the same numbers; tells the second from the first."""

    def __init__(self) -> None:
        self._logged: tuple[int, set[str]] | None = None

    def logged(self, step: int, logs: Mapping[str, Any]) -> None:
        self._logged = step, set(logs)

    def is_news(self, step: int, metrics: Mapping[str, Any]) -> bool:
        """Whether these metrics differ from the log just before."""
        before, self._logged = self._logged, None
        return before is None or before[0] != step or not set(metrics) - {"epoch"} <= before[1]
