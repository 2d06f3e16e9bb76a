"""What a run leaves behind at its end: numbers, a picture, a card, and the word how to use the model."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.checkpoint.manifest import versions
from burnish.tasks.shards import without_query
from burnish.tracking.model_card import CardFacts, may_replace, model_card

from .console import print_table, say

CURVE = "loss_curve.png"
CARD = "README.md"
FIGURES = {"runtime": "{:.1f} s", "per_second": "{:.1f}", "epoch": "{:g}", "flos": "{:.3g}"}


def figure(name: str, value: float) -> str:
    """A number for a person."""
    for ending, form in FIGURES.items():
        if name.endswith(ending):
            return form.format(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) >= 10):
        return f"{int(value):,}"
    return f"{value:.4f}" if abs(value) >= 1e-3 or value == 0 else f"{value:.2e}"


def print_results(metrics: Mapping[str, Any]) -> None:
    """A table of what was measured: the evaluation first, the training after it. The files hold more."""
    shown = {name: value for name, value in metrics.items() if isinstance(value, (int, float)) and not _is_detail(name)}
    order = ("eval_", "predict_", "train_")
    names = sorted(shown, key=lambda name: next((i for i, p in enumerate(order) if name.startswith(p)), len(order)))
    say()
    print_table("results", ["metric", "value"], [[name, figure(name, shown[name])] for name in names])


def print_best(state: Any, arguments: Any) -> None:
    """Which evaluation the weights are of, where the run ended with its best."""
    if not arguments.load_best_model_at_end or state.best_global_step is None:
        return
    name = arguments.metric_for_best_model or "loss"
    value = figure(name, state.best_metric)
    say(f"\nThe weights are those of step {state.best_global_step}, the best evaluation ({name} {value}).")


def _is_detail(name: str) -> bool:
    return name.endswith(("steps_per_second", "flos", "epoch")) or name in ("eval_samples_per_second", "eval_runtime")


def draw_loss(log_history: list[dict[str, Any]], folder: Path) -> bool:
    """The loss curve as a picture; False where there is nothing to draw or to draw with."""
    from burnish.tracking.curve import draw_curve

    return draw_curve(log_history, folder / CURVE) is not None


def write_card(
    settings: Any, run: Any, arguments: Any, metrics: Mapping[str, Any], has_curve: bool, repository: str | None = None
) -> None:
    """README.md in the output folder, unless it is somebody's own.

    Args:
        repository: of the hub, where the model is uploaded.
    """
    path = settings.output_dir / CARD
    if not may_replace(path):
        return
    data = {
        "training": settings.data.train_file or settings.data.dataset_name,
        "validation": settings.data.validation_file,
    }
    results = {
        name.removeprefix("eval_"): float(value)
        for name, value in metrics.items()
        if name.startswith("eval_") and not name.endswith(("runtime", "per_second")) and isinstance(value, (int, float))
    }
    facts = CardFacts(
        name=(repository or "").rpartition("/")[2] or settings.output_dir.resolve().name,
        source=repository or "",
        task=settings.task,
        base_model=settings.model.model_name_or_path,
        data={purpose: Path(without_query(name)).name for purpose, name in data.items() if name},
        results=results,
        settings={name: getattr(value, "value", value) for name, value in vars(arguments).items()},
        versions=versions(),
        folder=settings.output_dir,
        notes=run.notes,
        has_curve=has_curve,
    )
    path.write_text(model_card(facts), encoding="utf-8")


def print_next(folder: Path, data_file: str | None) -> None:
    """The command to use the model."""
    name = shlex.quote(str(folder))
    say(f"\nThe model is in {folder}. To use it:")
    say(f"  burnish predict {name} {shlex.quote(data_file) if data_file else 'data.csv'}")
    say(f'  burnish predict {name} --text "a sentence"')


def evaluation_at_the_end(state: Any, arguments: Any) -> dict[str, Any] | None:
    """The evaluation of the weights that the run ends with, where one was made during training: the best ones if they
    are loaded at the end, else the last. An evaluation draws nothing, so making it again would give the same."""
    step = state.best_global_step if arguments.load_best_model_at_end else state.global_step
    for entry in reversed(state.log_history):
        if entry["step"] == step and "eval_loss" in entry:
            return {name: value for name, value in entry.items() if name.startswith("eval_") or name == "epoch"}
    return None
