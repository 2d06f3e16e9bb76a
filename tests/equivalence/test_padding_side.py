"""The side on which rows are padded changes nothing, however a step is split."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
import torch

from burnish import DataCollatorForLanguageModeling, Trainer, TrainingArguments


def trained(folder: Path, side: str, batch: int = 8, accumulation: int = 1) -> tuple[list[float], torch.Tensor]:
    """The losses of four steps, and all weights in one row."""
    args = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        max_steps=4,
        learning_rate=1e-2,
        optim="sgd",
        logging_steps=1,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
    )
    rows = [{"input_ids": row["input_ids"]} for row in tiny.text_rows(32)]
    collator = DataCollatorForLanguageModeling(tiny.tokenizer(padding_side=side), mlm=False)
    trainer = Trainer(model=tiny.llama(), args=args, train_dataset=rows, data_collator=collator)
    trainer.train()
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    return losses, torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()])


@pytest.mark.parametrize(("batch", "accumulation"), [(8, 1), (4, 2), (1, 8)])
def test_a_language_model_learns_the_same_from_either_side(tmp_path: Path, batch: int, accumulation: int) -> None:
    losses, weights = trained(tmp_path / "right", "right")
    found, found_weights = trained(tmp_path / "left", "left", batch, accumulation)
    assert found == pytest.approx(losses, abs=1e-5)
    assert torch.allclose(found_weights, weights, atol=1e-6, rtol=0)
