"""Where each setting came from."""

from __future__ import annotations

from dataclasses import dataclass

import burnish
from burnish.arguments.origins import origins, with_origins


def test_nothing_given_is_all_default(tmp_path) -> None:
    assert set(origins(burnish.TrainingArguments()).values()) == {"default"}


def test_given_derived_and_default(tmp_path) -> None:
    args = burnish.TrainingArguments(
        str(tmp_path), eval_strategy="steps", load_best_model_at_end=True, gradient_checkpointing=True, report_to="none"
    )
    args.weight_decay = 0.1
    found = origins(args)
    for name in ("output_dir", "eval_strategy", "load_best_model_at_end", "gradient_checkpointing", "weight_decay"):
        assert found[name] == "argument", name
    for name in ("do_eval", "eval_steps", "metric_for_best_model", "greater_is_better"):
        assert found[name] == "derived", name
    assert found["learning_rate"] == found["report_to"] == "default"


def test_what_contradicts_the_derived_value_was_given(tmp_path) -> None:
    args = burnish.TrainingArguments(str(tmp_path), eval_strategy="steps", eval_steps=7)
    assert origins(args)["eval_steps"] == "argument"


def test_a_field_of_the_users_own_and_no_tokens(tmp_path) -> None:
    @dataclass
    class Own(burnish.TrainingArguments):
        own: int = 3

    found = with_origins(Own(str(tmp_path), own=4))
    assert found["own"] == {"value": 4, "origin": "argument"}
    assert found["lr_scheduler_type"] == {"value": "linear", "origin": "default"}
    assert not [name for name in found if name.endswith("token")]
