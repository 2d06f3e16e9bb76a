"""The loss curve is a picture of the numbers that were logged."""

from __future__ import annotations

import importlib.util
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from burnish.tracking.curve import draw_curve

HISTORY: list[dict[str, Any]] = [
    {"step": 1, "loss": 0.9, "learning_rate": 1e-4},
    {"step": 2, "loss": math.nan, "learning_rate": 5e-5},
    {"step": 2, "eval_loss": 0.8, "eval_runtime": 1.0},
    {"step": 3, "loss": 0.5, "learning_rate": 0.0},
    {"step": 3, "eval_loss": 0.6},
    {"step": 3, "train_runtime": 1.0, "train_loss": 0.7},
]

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


@needs_matplotlib
@pytest.mark.parametrize(
    "history",
    [
        HISTORY,
        [{"step": step, "loss": 1 / step} for step in range(1, 60)],
        [{"step": 4, "eval_a_loss": 0.5}, {"step": 4, "eval_b_loss": 0.25}],
    ],
)
def test_a_picture_is_written(history: list[dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "new" / "curve.png"
    assert draw_curve(history, path) == path
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 10_000


@needs_matplotlib
def test_the_lowest_evaluation_loss_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: drawn.append(figure))
    draw_curve(HISTORY, tmp_path / "curve.png")
    upper, lower = drawn[0].axes
    labels = [text.get_text() for text in upper.get_legend().get_texts()]
    assert labels == ["training loss", "evaluation loss, lowest 0.6 at step 3"]
    loss, evaluation, star = upper.get_lines()
    assert np.asarray(loss.get_xydata()).tolist() == [[1, 0.9], [3, 0.5]]
    assert np.asarray(evaluation.get_xydata()).tolist() == [[2, 0.8], [3, 0.6]]
    assert np.asarray(star.get_xydata()).tolist() == [[3, 0.6]]
    assert np.asarray(lower.get_lines()[0].get_ydata()).tolist() == [1e-4, 5e-5, 0.0]


def test_nothing_to_draw_is_no_picture(tmp_path: Path) -> None:
    assert draw_curve([], tmp_path / "curve.png") is None
    assert draw_curve([{"step": 1, "reward": 1.0}, {"step": 2, "loss": math.nan}], tmp_path / "curve.png") is None
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_one_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with caplog.at_level(logging.INFO, "burnish"):
        assert draw_curve(HISTORY, tmp_path / "curve.png") is None
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "pip install matplotlib" in caplog.text
