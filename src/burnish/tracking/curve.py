"""The loss curve of a run as a picture."""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .values import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

logger = logging.getLogger(__name__)

TRAIN, EVAL, RATE, INK, GRID = "#2f6fde", "#e4572e", "#7a8794", "#2b2f36", "#e6e9ed"
Points = tuple[list[int], list[float]]
"""Steps and values; only finite values."""


def draw_curve(log_history: Sequence[Mapping[str, Any]], path_png: str | Path) -> Path | None:
    """Draws training loss, evaluation losses with the lowest marked, and the learning rate below, over steps.

    Args:
        log_history: as in `TrainerState.log_history`; entries with "step" and "loss", "eval_loss" or
            "eval_<name>_loss", "learning_rate".
        path_png: where the picture goes.

    Returns:
        The path, or None where there is nothing to draw or matplotlib is not installed.
    """
    losses = _series(log_history, "loss")
    evaluations = {key: _series(log_history, key) for key in _evaluation_keys(log_history)}
    if not losses[0] and not any(points[0] for points in evaluations.values()):
        return None
    if importlib.util.find_spec("matplotlib") is None:
        logger.info("No picture of the loss curve: matplotlib is not installed (pip install matplotlib).")
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Not through pyplot, which would choose a backend and keep figures for the whole process.
    figure = Figure(figsize=(8, 5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    rates = _series(log_history, "learning_rate")
    heights = [5, 1] if rates[0] else [1]
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    _draw_losses(panels[0, 0], losses, evaluations)
    if rates[0]:
        _draw_rate(panels[1, 0], rates)
    for axes in panels[:, 0]:
        _tidy(axes)
    panels[-1, 0].set_xlabel("step", color=INK)
    path = Path(path_png)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")
    return path


def _draw_losses(axes: Axes, losses: Points, evaluations: dict[str, Points]) -> None:
    steps, values = losses
    if len(steps) > 30:
        axes.plot(steps, values, color=TRAIN, alpha=0.25, linewidth=1)
        axes.plot(steps, _smooth(values), color=TRAIN, linewidth=2, label="training loss (smoothed)")
    elif steps:
        axes.plot(steps, values, color=TRAIN, linewidth=2, label="training loss")
    shades = (EVAL, "#3a9d6e", "#9256c9", "#c79a1e")
    for i, (key, points) in enumerate(evaluations.items()):
        name = key.removeprefix("eval_").removesuffix("loss").strip("_")
        if points[0]:
            _draw_evaluation(axes, points, f"evaluation loss ({name})" if name else "evaluation loss", shades[i % 4])
    axes.set_ylabel("loss", color=INK)
    axes.legend(frameon=False, labelcolor=INK)


def _draw_evaluation(axes: Axes, points: Points, label: str, shade: str) -> None:
    """The lowest value is a star, and said in the legend, where nothing can cover it."""
    steps, values = points
    best = min(range(len(values)), key=values.__getitem__)
    label = f"{label}, lowest {values[best]:.4g} at step {steps[best]}"
    axes.plot(steps, values, color=shade, linewidth=1.5, marker="o", markersize=4, label=label)
    axes.plot(steps[best], values[best], marker="*", markersize=15, color=shade, markeredgecolor="white", zorder=5)


def _draw_rate(axes: Axes, rates: Points) -> None:
    axes.plot(*rates, color=RATE, linewidth=1.5)
    axes.fill_between(*rates, color=RATE, alpha=0.15, linewidth=0)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("lr", color=INK)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))


def _tidy(axes: Axes) -> None:
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0, labelsize=9)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.margins(x=0.02)
    axes.locator_params(axis="x", integer=True)


def _series(log_history: Sequence[Mapping[str, Any]], key: str) -> Points:
    """Steps and finite values of one key; of two values at a step, the later one."""
    found = {int(entry["step"]): plain(entry[key]) for entry in log_history if key in entry and "step" in entry}
    finite = {step: v for step, v in sorted(found.items()) if isinstance(v, (int, float)) and math.isfinite(v)}
    return list(finite), [float(value) for value in finite.values()]


def _evaluation_keys(log_history: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = {key for entry in log_history for key in entry if key.startswith("eval_") and key.endswith("loss")}
    return sorted(keys)


def _smooth(values: list[float]) -> list[float]:
    """The mean of each value and its neighbours, up to a thirtieth of the run on either side."""
    reach = max(1, len(values) // 30)
    windows = (values[max(0, i - reach) : i + reach + 1] for i in range(len(values)))
    return [sum(window) / len(window) for window in windows]
