"""The rows of README's table that no other file here shows: one short run for each."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from burnish import Trainer, TrainingArguments
from burnish.core.errors import UserError

BAD_TOKEN = tiny.NUM_WORDS - 1


def trainer(model: Any, folder: Path, rows: list[tiny.Row], eval_rows: Any = None, **changes: Any) -> Trainer:
    settings = {"per_device_train_batch_size": 2, "learning_rate": 1e-3, "use_cpu": True, "report_to": "none"}
    plain = {"save_strategy": "no", "disable_tqdm": True, "train_sampling_strategy": "sequential"}
    args = TrainingArguments(output_dir=str(folder), **{**settings, **plain, **changes})
    return Trainer(model=model, args=args, train_dataset=rows, eval_dataset=eval_rows)


def classifier(**changes: Any) -> Any:
    return tiny.bert("SequenceClassification", **changes)


def weights(model: Any) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def rows_with_a_bad_one(bad: int) -> list[tiny.Row]:
    """Twelve rows, of which one holds BAD_TOKEN."""
    rows = tiny.class_rows(12)
    for row in rows:
        row["input_ids"] = [min(token, BAD_TOKEN - 1) for token in row["input_ids"]]
    rows[bad]["input_ids"][1] = BAD_TOKEN
    return rows


def spoilt(model: Any) -> Any:
    """The model, giving NaN for rows that hold BAD_TOKEN."""

    def spoil(module: Any, args: Any, embedded: torch.Tensor) -> torch.Tensor:
        return embedded.masked_fill((args[0] == BAD_TOKEN).any(-1)[:, None, None], math.nan)

    model.get_input_embeddings().register_forward_hook(spoil)
    return model


def test_a_loss_that_is_nan_stops_the_run_before_it_is_applied(tmp_path: Path) -> None:
    model = spoilt(classifier())
    with pytest.raises(RuntimeError, match=r"\b3\b(?s:.)*\b5\b"):  # step 3 of rows 4 and 5
        trainer(model, tmp_path, rows_with_a_bad_one(5), max_steps=6).train()
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_a_label_out_of_range_is_refused_before_the_first_step(tmp_path: Path) -> None:
    rows = tiny.class_rows(12)
    rows[7]["labels"] = 4
    model = classifier()
    before = weights(model)
    with pytest.raises(UserError, match=r"\b7\b(?s:.)*\b4\b"):
        trainer(model, tmp_path, rows).train()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_short_run_logs_its_first_and_last_loss(tmp_path: Path) -> None:
    run = trainer(classifier(), tmp_path, tiny.class_rows(14), num_train_epochs=1)
    run.train()
    logged = {entry["step"] for entry in run.state.log_history if "loss" in entry}
    assert {1, run.state.max_steps} <= logged


def test_evaluating_changes_neither_training_nor_the_generators(tmp_path: Path) -> None:
    def trained(**changes: Any) -> list[torch.Tensor]:
        model = classifier(hidden_dropout_prob=0.3)
        torch.manual_seed(5)
        expected = torch.get_rng_state()
        trainer(model, tmp_path, tiny.class_rows(12), eval_rows=tiny.class_rows(4), max_steps=6, **changes).train()
        assert torch.equal(torch.get_rng_state(), expected)
        return weights(model)

    never, often = trained(), trained(eval_strategy="steps", eval_steps=1)
    assert all(torch.equal(a, b) for a, b in zip(never, often, strict=True))
