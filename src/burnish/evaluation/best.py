"""Which evaluation is the best, and by which of its metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from burnish.core.errors import SettingError, did_you_mean


def is_better(value: float, best: float | None, greater_is_better: bool) -> bool:
    """Whether `value` beats `best`. NaN never does; anything else beats None and NaN; a tie does not win."""
    if math.isnan(value):
        return False
    if best is None or math.isnan(best):
        return True
    return value > best if greater_is_better else value < best


def metric_key(name: str, prefix: str = "eval") -> str:
    """The name of a metric, which may lack its prefix, among the metrics of an evaluation."""
    return name if name.startswith(f"{prefix}_") else f"{prefix}_{name}"


def metric_value(metrics: Mapping[str, Any], name: str, prefix: str = "eval") -> float:
    """The metric `name`, which may lack its prefix, as a float.

    Raises:
        SettingError: there is no such metric, it is not a number, or several datasets have one of that name, so that it
            must be said whose is meant.
    """
    key = metric_key(name, prefix)
    if key not in metrics:
        raise SettingError(_missing(metrics, key, prefix))
    value = metrics[key]
    try:
        return float(value)
    except (TypeError, ValueError):
        raise SettingError(f"metric_for_best_model={name!r} must be a number, but {key} is {value!r}.") from None


def _missing(metrics: Mapping[str, Any], key: str, prefix: str) -> str:
    bare = key.removeprefix(f"{prefix}_")
    of_datasets = [known for known in metrics if known.startswith(f"{prefix}_") and known.endswith(f"_{bare}")]
    if len(of_datasets) > 1:
        choices = " or ".join(map(repr, of_datasets))
        return f"metric_for_best_model={bare!r} does not say of which dataset: set it to {choices}."
    return (
        f"metric_for_best_model={bare!r} is not among the metrics of this evaluation. These are: "
        f"{', '.join(sorted(metrics)) or 'none'}.{did_you_mean(key, metrics)}"
    )
