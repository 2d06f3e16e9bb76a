"""The memory of an evaluation does not grow with the number of rows where nothing needs them all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
from trainer import runs

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
VOCABULARY, TOKENS = 2000, 4
LOGITS_MIB = 20_000 * VOCABULARY * TOKENS * 4 / 2**20

pytestmark = [
    pytest.mark.skipif(not RESET.exists(), reason="needs Linux's peak of resident memory"),
    pytest.mark.slow,
]


class Rows(torch.utils.data.Dataset):
    """Rows that are made when they are asked for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> tiny.Row:
        ids = [5 + (row * 7 + place) % 90 for place in range(TOKENS)]
        return {"input_ids": ids, "attention_mask": [1] * TOKENS, "labels": ids}


def resident(what: str) -> float:
    return int(re.search(rf"{what}:\s+(\d+)", STATUS.read_text())[1]) / 1024


def growth(run: Any, rows: int) -> float:
    """MiB by which the resident memory rises above what it was, at most."""
    RESET.write_text("5")
    before = resident("VmRSS")
    run.evaluate(Rows(rows))
    return resident("VmHWM") - before


@pytest.mark.parametrize("how", ["names", "batches", "reduced"])
def test_rows_do_not_cost_memory(tmp_path: Path, how: str) -> None:
    model = tiny.llama(vocab_size=VOCABULARY, hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    parts: dict[str, Any] = {"model": model, "data_collator": transformers.default_data_collator}
    if how == "names":
        parts["compute_metrics"] = ["token_accuracy", "perplexity", "f1_macro"]
    elif how == "batches":
        parts["compute_metrics"] = lambda given, compute_result: {"rows": len(given.label_ids)}
    else:
        parts["compute_metrics"] = lambda given: {"first": int(given.predictions[0, 0])}
        parts["preprocess_logits_for_metrics"] = lambda logits, labels: logits.argmax(-1)
    run = runs.trainer(
        tmp_path, parts=parts, per_device_eval_batch_size=100, batch_eval_metrics=how == "batches"
    )  # fmt: skip
    run.evaluate(Rows(400))  # libraries, and what a batch takes
    few, many = growth(run, 100), growth(run, 20_000)
    print(f"{how}: {few:.1f} MiB for 100 rows, {many:.1f} for 20,000; all logits are {LOGITS_MIB:.0f}")
    assert many - few < 0.08 * LOGITS_MIB
