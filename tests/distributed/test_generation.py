"""Texts of an evaluation on several processes: each row once, in its order, the same as in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import transformers
from distributed.forked import in_processes, values
from torch.utils.data import DataLoader
from trainer import runs

from burnish import Seq2SeqTrainer, Seq2SeqTrainingArguments


class OwnLoader(Seq2SeqTrainer):
    def get_test_dataloader(self, test_dataset: Any) -> Any:
        return DataLoader(test_dataset, batch_size=2, collate_fn=self.data_collator)


def rows(count: int) -> list[dict[str, Any]]:
    return [{**row, "labels": [-100] * 3 + row["input_ids"][3:]} for row in tiny.text_rows(count)]


def written(folder: Path, kind: type[Seq2SeqTrainer], count: int) -> Any:
    config = transformers.GenerationConfig(do_sample=True, temperature=2.0, max_new_tokens=5)
    settings = {"predict_with_generate": True, "generation_config": config, "per_device_eval_batch_size": 2}
    run = kind(
        model=tiny.llama(),
        args=runs.arguments(folder, Seq2SeqTrainingArguments, **settings, generation_max_rows=3),
        data_collator=transformers.DataCollatorForTokenClassification(tiny.tokenizer()),
        processing_class=tiny.tokenizer(),
        eval_dataset=rows(count),
        compute_metrics=["exact_match", "chrf"],
    )
    found = run.predict(rows(count))
    metrics = {name: value for name, value in found.metrics.items() if "second" not in name and "time" not in name}
    evaluated = run.evaluate()
    return (
        found.predictions.tolist(),
        found.label_ids.tolist(),
        metrics,
        evaluated["eval_chrf"],
        evaluated["eval_gen_len"],
    )


@pytest.mark.parametrize("kind", [Seq2SeqTrainer, OwnLoader])
def test_texts_are_those_of_one_process(kind: type[Seq2SeqTrainer], tmp_path: Path) -> None:
    alone = written(tmp_path / "alone", kind, 7)
    assert len(alone[0]) == 7
    for count in (2, 3):
        found = values(in_processes(count, tmp_path, written, tmp_path / str(count), kind, 7))
        for one in found:
            assert one[:2] == alone[:2] and one[3:] == alone[3:]
            assert one[2] == pytest.approx(alone[2], rel=1e-6)
        texts = (tmp_path / str(count) / "texts" / "test-0.jsonl").read_text()
        assert texts == (tmp_path / "alone" / "texts" / "test-0.jsonl").read_text()
