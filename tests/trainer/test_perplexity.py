"""Perplexity alone follows from the loss: no logits of the whole vocabulary at every position."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import tiny
import transformers
from trainer import runs


def evaluated(folder: Path, metrics: Any, **settings: Any) -> tuple[dict[str, Any], int]:
    """The metrics, and the positions that the output layer computed in the evaluation."""
    rows = [{**row, "labels": [-100] * (len(row["labels"]) - 2) + row["labels"][-2:]} for row in tiny.language_rows(12)]
    model, positions = tiny.llama(), []
    parts = {"model": model, "eval_dataset": rows, "compute_metrics": metrics,
             "data_collator": transformers.DataCollatorForTokenClassification(tiny.tokenizer())}  # fmt: skip
    run = runs.trainer(folder, parts=parts, **settings)
    run.evaluate()
    hook = model.lm_head.register_forward_hook(lambda head, given, out: positions.append(out.shape[:-1].numel()))
    found = run.evaluate()
    hook.remove()
    return found, sum(positions)


@pytest.mark.parametrize("asked", ["perplexity", ["perplexity"]])
def test_it_is_that_of_all_logits(asked: Any, tmp_path: Path) -> None:
    found, few = evaluated(tmp_path, asked)
    beside, many = evaluated(tmp_path, ["perplexity", "token_accuracy"])
    assert found["eval_perplexity"] == pytest.approx(beside["eval_perplexity"], rel=1e-6)
    assert found["eval_perplexity"] == pytest.approx(math.exp(found["eval_loss"]))
    assert few <= 12 * 3 < many


def test_smoothed_labels_are_another_loss(tmp_path: Path) -> None:
    found, _ = evaluated(tmp_path, "perplexity", label_smoothing_factor=0.2)
    plain, _ = evaluated(tmp_path, "perplexity")
    assert found["eval_perplexity"] == pytest.approx(plain["eval_perplexity"], rel=1e-6)
    assert found["eval_loss"] != pytest.approx(plain["eval_loss"], rel=1e-4)
