"""Parts of a model that are kept in evaluation mode on purpose stay in it."""

from __future__ import annotations

from pathlib import Path

import tiny
from trainer import runs


def test_an_evaluation_in_between_leaves_the_mode_of_every_module(tmp_path: Path) -> None:
    parts = {"train_dataset": tiny.class_rows(16), "eval_dataset": tiny.class_rows(4)}
    run = runs.trainer(tmp_path, max_steps=3, eval_strategy="steps", eval_steps=1, parts=parts)
    run.model.train()
    frozen = run.model.get_input_embeddings()
    frozen.eval()
    run.train()
    assert run.model.training and not frozen.training
    run.evaluate()
    assert run.model.training and not frozen.training
