"""A run with a compiled model: the losses of a plain one, and checkpoints without a trace of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import load_file

from burnish import Trainer, TrainingArguments

STEPS = 3


def run(folder: Path, **changes: Any) -> tuple[Any, list[float]]:
    rows = [{**row, "input_ids": row["input_ids"][:4], "attention_mask": [1] * 4} for row in tiny.class_rows(8)]
    args = TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        logging_steps=1,
        save_steps=STEPS,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        **changes,
    )
    trainer = Trainer(model=tiny.bert("SequenceClassification", num_hidden_layers=1), args=args, train_dataset=rows)
    trainer.train()
    return trainer, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.slow
def test_losses_and_checkpoints(tmp_path: Path) -> None:
    plain, losses = run(tmp_path / "plain")
    trainer, found = run(tmp_path / "compiled", torch_compile=True, torch_compile_backend="aot_eager")
    assert len(found) == STEPS and found == pytest.approx(losses, rel=1e-5)
    saved = load_file(tmp_path / "compiled" / f"checkpoint-{STEPS}" / "model.safetensors")
    assert saved.keys() == plain.model.state_dict().keys()
    for name, value in plain.model.state_dict().items():
        torch.testing.assert_close(saved[name], value, rtol=1e-4, atol=1e-6)
    assert trainer.model_wrapped is trainer.model and not hasattr(trainer.model, "_orig_mod")
