"""What the command chooses where there are rows to evaluate on."""

from __future__ import annotations

from typing import Any

import pytest

from burnish.cli.settings import Settings, with_validation
from burnish.tasks.recipe import DataRequest, ModelRequest


def chosen(**training: Any) -> dict[str, Any]:
    return with_validation(Settings("task", DataRequest(), ModelRequest("m"), training, {}, {}, ""))


def test_an_epoch_is_evaluated_and_saved_and_the_best_is_kept():
    assert chosen() == {
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "load_best_model_at_end": True,
        "save_total_limit": 2,
    }


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"eval_strategy": "steps"}, {}),
        ({"eval_strategy": "no"}, {}),
        ({"save_strategy": "steps"}, {"eval_strategy": "epoch"}),
        ({"save_steps": 50}, {"eval_strategy": "epoch", "save_strategy": "steps"}),
        ({"eval_steps": 50}, {"eval_strategy": "steps"}),
        ({"eval_steps": 50, "eval_strategy": "epoch", "save_strategy": "no"}, {}),
        ({"save_total_limit": 5}, {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}),
    ],
)
def test_what_the_user_gave_stays(given, left):
    assert chosen(**given) == left


def test_the_best_is_not_kept_against_the_users_word():
    assert "save_total_limit" not in chosen(load_best_model_at_end=False)
