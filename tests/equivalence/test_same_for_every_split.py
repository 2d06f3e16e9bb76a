"""How a step is computed does not change what it computes: batches, padding and workers leave the weights alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers

from burnish import Trainer, TrainingArguments

ROWS = 40  # five steps of 8 a pass
TOLERANCE = 1e-6
SPLITS = {"8x1": (8, 1), "4x2": (4, 2), "1x8": (1, 8)}

MODELS = {
    "sequence_classification": (lambda: tiny.bert("SequenceClassification"), tiny.class_rows),
    "token_classification": (lambda: tiny.bert("TokenClassification", num_labels=3), tiny.tag_rows),
    "causal_lm": (tiny.llama, tiny.language_rows),
    "seq2seq": (tiny.t5, tiny.pair_rows),
}


def to_full_length(kind: str) -> Any:
    """A collator that pads each row, or each source and target, to the longest that any row may have."""
    tokenizer = tiny.tokenizer()
    if kind == "sequence_classification":
        return transformers.DataCollatorWithPadding(tokenizer, padding="max_length", max_length=tiny.MAX_LENGTH)
    if kind == "seq2seq":
        return transformers.DataCollatorForSeq2Seq(tokenizer, padding="max_length", max_length=tiny.MAX_LENGTH)
    return transformers.DataCollatorForTokenClassification(tokenizer, padding="max_length", max_length=tiny.MAX_LENGTH)


def to_longest(kind: str) -> Any:
    collator = to_full_length(kind)
    collator.padding, collator.max_length = True, None
    return collator


def weights(kind: str, folder: Path, collator: Any = None, split: str = "8x1", **changes: Any) -> dict[str, Any]:
    """The weights after two passes."""
    build, rows = MODELS[kind]
    model = build()
    batch, accumulation = SPLITS[split]
    settings = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": accumulation,
        "learning_rate": 1e-3,
        "adam_epsilon": 1e-5,  # see test_same_as_transformers.py
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
    }
    args = TrainingArguments(output_dir=str(folder), **{**settings, **changes})
    trainer = Trainer(model=model, args=args, train_dataset=rows(ROWS), data_collator=collator or to_longest(kind))
    trainer.train()
    assert trainer.state.global_step == 10
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def largest_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)


@pytest.mark.parametrize("kind", MODELS)
def test_batch_size_against_accumulation(kind: str, tmp_path: Path) -> None:
    """8 examples a step as 8 x 1, 4 x 2 and 1 x 8, in random order: the same steps, the same weights."""
    whole = weights(kind, tmp_path)
    for split in ("4x2", "1x8"):
        assert largest_difference(whole, weights(kind, tmp_path, split=split)) < TOLERANCE, split


@pytest.mark.parametrize("kind", MODELS)
def test_padding_to_the_full_length(kind: str, tmp_path: Path) -> None:
    dynamic = weights(kind, tmp_path)
    padded = weights(kind, tmp_path, collator=to_full_length(kind), split="4x2")
    assert largest_difference(dynamic, padded) < TOLERANCE


@pytest.mark.slow
def test_number_of_workers(tmp_path: Path) -> None:
    """Also for a collator that draws: masks are those of the step, whoever makes them."""
    alone = weights("causal_lm", tmp_path)
    helped = weights("causal_lm", tmp_path, dataloader_num_workers=2)
    assert largest_difference(alone, helped) == 0.0


@pytest.mark.slow
def test_number_of_workers_with_random_masking(tmp_path: Path) -> None:
    def masked_weights(workers: int) -> dict[str, Any]:
        collator = transformers.DataCollatorForLanguageModeling(tiny.tokenizer(), mlm_probability=0.3)
        model = tiny.bert("MaskedLM")
        args = TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=6,
            per_device_train_batch_size=4,
            dataloader_num_workers=workers,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
        )
        Trainer(model=model, args=args, train_dataset=tiny.text_rows(16), data_collator=collator).train()
        return {name: value.detach().clone() for name, value in model.named_parameters()}

    assert largest_difference(masked_weights(0), masked_weights(2)) == 0.0
