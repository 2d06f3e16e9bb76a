"""`eval_do_concat_batches=False`: what came out for each batch, as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import transformers
from trainer import runs


def test_each_batch_stays_what_it_was(tmp_path: Path) -> None:
    rows, seen = tiny.tag_rows(10), []

    def counted(prediction: Any) -> dict[str, float]:
        seen.append(prediction)
        return {"batches": len(prediction.predictions)}

    parts = {
        "model": tiny.bert("TokenClassification", num_labels=3),
        "data_collator": transformers.DataCollatorForTokenClassification(tiny.tokenizer()),
        "compute_metrics": counted,
    }
    apart = runs.trainer(tmp_path, parts=parts, eval_do_concat_batches=False).predict(rows)
    joined = runs.trainer(tmp_path, parts=parts).predict(rows)
    assert apart.metrics["test_batches"] == 3 and [len(batch) for batch in apart.predictions] == [4, 4, 2]
    assert len({batch.shape[1] for batch in apart.label_ids}) > 1
    start = 0
    for logits, labels in zip(apart.predictions, apart.label_ids, strict=True):
        rest = joined.predictions[start : start + len(logits), : logits.shape[1]]
        assert np.abs(logits - rest).max() < 1e-5
        assert (labels == joined.label_ids[start : start + len(labels), : labels.shape[1]]).all()
        start += len(logits)
    assert joined.metrics["test_loss"] == pytest.approx(apart.metrics["test_loss"], abs=1e-6)


def test_boxes(tmp_path: Path) -> None:
    """Each image has boxes of its own number, and the parts of the loss are logged."""
    torch.manual_seed(0)
    config = transformers.YolosConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=[32, 32],
        patch_size=16, num_detection_tokens=4, num_labels=3, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    images = [
        {"pixel_values": torch.rand(3, 32, 32),
         "labels": {"class_labels": torch.tensor([1] * (1 + i % 2)), "boxes": torch.rand(1 + i % 2, 4)}}
        for i in range(5)
    ]  # fmt: skip

    def collate(rows: list[Any]) -> dict[str, Any]:
        return {
            "pixel_values": torch.stack([row["pixel_values"] for row in rows]),
            "labels": [r["labels"] for r in rows],
        }

    sizes: list[int] = []

    def boxes(prediction: Any) -> dict[str, float]:
        sizes.extend(len(row["boxes"]) for batch in prediction.label_ids for row in batch)
        return {"boxes": len(sizes)}

    parts = {"model": transformers.YolosForObjectDetection(config), "train_dataset": images, "eval_dataset": images,
             "data_collator": collate, "compute_metrics": boxes}  # fmt: skip
    run = runs.trainer(
        tmp_path, parts=parts, eval_do_concat_batches=False, max_steps=1, per_device_train_batch_size=3,
        per_device_eval_batch_size=2,
    )  # fmt: skip
    run.train()
    found = run.evaluate()
    assert sizes == [1, 2, 1, 2, 1]
    assert {"eval_loss_ce", "eval_loss_bbox", "eval_loss_giou"} <= set(found)
    assert set(runs.logged(run, "loss_bbox")) == {1}
