"""Which checkpoints a run leaves: the best so many, the last so many, milestones, and those saved by the clock."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tiny
from trainer import runs

import burnish
from burnish.checkpoint import copies, find, in_use, layout, retention, staging, tensors
from burnish.core import run_clock
from burnish.core.errors import SettingError
from burnish.core.progress import TrainerState

SCORES = {1: 0.3, 2: 0.9, 3: 0.5, 4: math.nan, 5: 0.9, 6: 0.8, 7: 0.1, 8: 0.2}


class Stop(burnish.TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **details: Any) -> None:
        control.should_training_stop |= state.global_step == self.step


def run(folder: Path, *callbacks: Any, scores: Mapping[int, float] = SCORES, **settings: Any) -> Any:
    """Evaluated after every step, with a score that is given."""
    usual: dict[str, Any] = {
        "max_steps": 8, "save_strategy": "steps", "save_steps": 4, "eval_strategy": "steps", "eval_steps": 1,
        "metric_for_best_model": "score", "greater_is_better": True,
    }  # fmt: skip
    parts = {"callbacks": list(callbacks), "eval_dataset": tiny.class_rows(3)}
    made = runs.trainer(folder, parts=parts, **{**usual, **settings})
    made.compute_metrics = lambda prediction: {"score": scores[made.state.global_step]}
    return made


def steps(folder: Path) -> list[int | None]:
    return [layout.step_of(path) for path in find.checkpoints(folder)]


RULES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "best 1": ({"keep_best": 1}, [2, 8]),
    "best 2, the earlier of equal ones first": ({"keep_best": 2}, [2, 5, 8]),
    "best 3": ({"keep_best": 3}, [2, 5, 6, 8]),
    "lowest 2": ({"keep_best": 2, "greater_is_better": False}, [7, 8]),
    "last 2": ({"keep_last": 2}, [4, 8]),
    "every step saved, last 3 and best 2": ({"keep_last": 3, "keep_best": 2, "save_steps": 1}, [2, 5, 6, 7, 8]),
    "milestones": ({"keep_every_steps": 3, "save_steps": 1, "metric_for_best_model": None}, [3, 6, 8]),
    "milestones and the best": ({"keep_every_steps": 3, "save_steps": 1, "keep_best": 1}, [2, 3, 6, 8]),
    "a limit with milestones": ({"save_total_limit": 2, "keep_every_steps": 4, "save_steps": 1}, [2, 4, 7, 8]),
    "a limit with the best": ({"save_total_limit": 3, "keep_best": 2}, [2, 5, 8]),
    "best at the end": ({"load_best_model_at_end": True, "keep_last": 1}, [2, 8]),
    "saved when it is the best": ({"save_strategy": "best", "keep_best": 2}, [2, 5]),
}


@pytest.mark.parametrize("stop", [None, 5])
@pytest.mark.parametrize("name", RULES)
def test_rules(name: str, stop: int | None, tmp_path: Path) -> None:
    """Whether the run is in one piece and saves behind the training, or goes on from a checkpoint in between."""
    settings, expected = RULES[name]
    if stop is not None:
        run(tmp_path, Stop(stop), **settings).train()
    run(tmp_path, save_async=stop is None, **settings).train(resume_from_checkpoint="auto")
    found = steps(tmp_path)
    assert found == expected
    assert all(find.problem_with(path) is None for path in find.checkpoints(tmp_path))


def test_nan_is_never_among_the_best(tmp_path: Path) -> None:
    run(tmp_path, scores=dict.fromkeys(range(1, 9), math.nan), keep_best=2).train()
    assert steps(tmp_path) == [8]


def test_a_run_that_writes_over_the_best_of_before_the_resume_keeps_it(tmp_path: Path) -> None:
    """The best came before the checkpoint that is gone on from; later ones are worse."""
    run(tmp_path, Stop(4), keep_best=1).train()
    assert steps(tmp_path) == [2, 4]
    run(tmp_path, keep_best=1, scores={**SCORES, 5: 0.0}).train(resume_from_checkpoint=True)
    assert steps(tmp_path) == [2, 8]


def test_settings_that_contradict(tmp_path: Path) -> None:
    for name in ("keep_last", "keep_best", "keep_every_steps", "keep_every_minutes", "save_minutes"):
        with pytest.raises(SettingError, match=f"`{name}` = 0"):
            runs.arguments(tmp_path, **{name: 0})
    with pytest.raises(SettingError, match="Set `save_total_limit` to 5 or more"):
        runs.arguments(tmp_path, keep_last=2, keep_best=3, save_total_limit=4, eval_strategy="steps")
    with pytest.raises(SettingError, match="`keep_best=2` and `eval_strategy='no'`"):
        runs.arguments(tmp_path, keep_best=2)
    args = runs.arguments(tmp_path, keep_best=2, eval_strategy="steps")
    assert (args.metric_for_best_model, args.greater_is_better) == ("loss", False)


# ---------------------------------------------------------------- by the clock


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"save_strategy": "no"}, [3, 6, 8]),
        ({"save_steps": 500}, [3, 6, 8]),
        ({"save_steps": 4}, [3, 4, 7, 8]),
        ({"save_strategy": "epoch"}, [3, 5, 8]),
    ],
    ids=str,
)
def test_saved_every_so_many_minutes(
    settings: dict[str, Any], expected: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """25 minutes a step, and a checkpoint an hour after the one before at the latest."""
    minutes = [0.0]

    class Passes(burnish.TrainerCallback):
        def on_step_begin(self, args: Any, state: TrainerState, control: Any, **details: Any) -> None:
            minutes[0] += 25

    monkeypatch.setattr(run_clock, "now", lambda: 60 * minutes[0])
    run(tmp_path, Passes(), save_minutes=60, eval_strategy="no", metric_for_best_model=None, **settings).train()
    assert steps(tmp_path) == expected


@pytest.mark.parametrize("save_async", [True, False])
def test_a_checkpoint_that_stands_was_saved_though_older_ones_could_not_be_looked_through(
    save_async: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(output_dir: Path, run_id: str) -> list[Path]:
        raise OSError("the other machine does not answer")

    monkeypatch.setattr(copies, "is_worth_it", lambda snapshot: True)
    monkeypatch.setattr(retention, "of_run", fails)
    trainer = run(tmp_path, load_best_model_at_end=True, save_steps=2, keep_last=1, save_async=save_async)
    trainer.train()
    assert steps(tmp_path) == [1, 2, 4, 6, 8]  # each new best is saved
    assert "was not saved" not in caplog.text and "does not answer" in caplog.text
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-2")


# ---------------------------------------------------------------- in use


def test_one_that_is_read_stays_and_goes_later(tmp_path: Path) -> None:
    held = []

    class Reads(burnish.TrainerCallback):
        def on_step_end(self, args: Any, state: TrainerState, control: Any, **details: Any) -> None:
            if state.global_step == 3:
                held.append(in_use.held(tmp_path / "checkpoint-2"))
                held[0].__enter__()
            if state.global_step == 6:
                held[0].__exit__(None, None, None)
                assert steps(tmp_path) == [2, 5]

    run(tmp_path, Reads(), save_steps=1, keep_last=1, save_async=False, metric_for_best_model=None).train()
    assert held and steps(tmp_path) == [8]


def test_a_run_holds_what_it_goes_on_from_and_the_best_that_it_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, Stop(4), load_best_model_at_end=True).train()
    read, free = tensors.read, []

    def watched(folder: Path) -> Any:
        with in_use.claimed(folder) as nobody_reads_it:
            free.append((folder.name, nobody_reads_it))
        return read(folder)

    monkeypatch.setattr(tensors, "read", watched)
    run(tmp_path, load_best_model_at_end=True).train(resume_from_checkpoint=True)
    assert free == [("checkpoint-4", False), ("checkpoint-2", False)]


def test_a_run_whose_folder_was_moved_keeps_and_loads_its_best(tmp_path: Path) -> None:
    straight = run(tmp_path / "straight", load_best_model_at_end=True, keep_last=1)
    straight.train()
    run(tmp_path / "here", Stop(4), load_best_model_at_end=True, keep_last=1).train()
    shutil.move(tmp_path / "here", tmp_path / "there")
    moved = run(tmp_path / "there", load_best_model_at_end=True, keep_last=1)
    moved.train(resume_from_checkpoint=True)
    assert moved.state.best_model_checkpoint == str(tmp_path / "there" / "checkpoint-2")
    assert steps(tmp_path / "there") == [2, 8]
    assert runs.difference(straight.model, moved.model) == 0.0


def test_a_best_that_is_gone_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, Stop(4), load_best_model_at_end=True).train()
    staging.discard(tmp_path / "checkpoint-2")
    again = run(tmp_path, load_best_model_at_end=True, scores={**SCORES, 5: 0.1})
    again.train(resume_from_checkpoint=True)
    assert "checkpoint-2, the best so far, is not there any more" in caplog.text
    assert again.state.best_global_step == 6 and again.state.best_metric == 0.8
