"""The README.md of a model."""

from __future__ import annotations

from pathlib import Path

from burnish.tracking.model_card import CardFacts, model_card


def card(base_model: str, **settings) -> str:
    return model_card(
        CardFacts(
            name="out",
            task="text-classification",
            base_model=base_model,
            data={"training": "train.csv", "validation": "validation.csv"},
            results={"accuracy": 0.91234},
            settings={"learning_rate": 1e-4, "num_train_epochs": 2.0, "max_steps": -1, "logging_steps": 5, **settings},
            versions={"torch": "2.0"},
            folder=Path("runs/out"),
            notes=[("classes", "a|b 3\nc 4")],
            has_curve=True,
        )
    )


def test_the_card_says_what_the_model_is_and_how_good():
    text = card("someone/model")
    assert text.startswith("---\nlibrary_name: transformers\nbase_model: someone/model\n")
    assert "| accuracy | 0.9123 |" in text and "loss_curve.png" in text
    assert "`train.csv` (training) and `validation.csv` (validation)" in text
    assert "| learning_rate | 0.0001 |" in text and "logging_steps" not in text
    assert "| classes | a\\|b 3 c 4 |" in text


def test_a_folder_is_no_name_on_the_hub(tmp_path):
    text = card(str(tmp_path))
    assert "base_model" not in text and str(tmp_path) not in text
    assert f"`{tmp_path.name}`" in text


def test_the_length_of_the_run_is_said_once():
    assert "num_train_epochs | 2.0" in card("m") and "max_steps" not in card("m")
    assert "max_steps | 7" in card("m", max_steps=7) and "num_train_epochs" not in card("m", max_steps=7)
