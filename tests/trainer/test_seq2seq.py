"""Evaluation and prediction that write text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import transformers
from trainer import runs

from burnish import Seq2SeqTrainer, Seq2SeqTrainingArguments


def writer(folder: Path, parts: dict[str, Any] | None = None, **settings: Any) -> Any:
    model = (parts or {}).get("model") or tiny.t5()
    usual = {
        "model": model,
        "args": runs.arguments(folder, Seq2SeqTrainingArguments, **{"predict_with_generate": True, **settings}),
        "train_dataset": tiny.pair_rows(8),
        "eval_dataset": tiny.pair_rows(5),
        "data_collator": transformers.DataCollatorForSeq2Seq(tiny.tokenizer()),
        "processing_class": tiny.tokenizer(),
    }
    return Seq2SeqTrainer(**{**usual, **(parts or {})})


def written_by_hand(model: Any, row: Any, **decoding: Any) -> list[int]:
    found = model.eval().generate(torch.tensor([row["input_ids"]]), **decoding)[0]
    return [token for token in found.tolist() if token != tiny.PAD]


def without_padding(ids: Any) -> list[list[int]]:
    return [[token for token in row if token != tiny.PAD] for row in ids.tolist()]


def test_predictions_are_what_the_model_writes(tmp_path: Path) -> None:
    run = writer(tmp_path, per_device_eval_batch_size=2)
    rows = tiny.pair_rows(5)
    found = run.predict(rows, max_length=7, num_beams=1)
    expected = [written_by_hand(run.model, row, max_length=7, num_beams=1) for row in rows]
    assert without_padding(found.predictions) == expected
    assert without_padding(found.label_ids) == [row["labels"] for row in rows]
    assert (found.predictions != -100).all() and (found.label_ids != -100).all()


@pytest.mark.parametrize(
    "how", ["in_the_call", "in_the_settings", "as_a_config"],
)  # fmt: skip
def test_where_decoding_is_set(how: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {}
    call: dict[str, Any] = {}
    if how == "in_the_call":
        call = {"max_length": 5, "num_beams": 2}
    elif how == "in_the_settings":
        settings = {"generation_max_length": 5, "generation_num_beams": 2}
    else:
        config = transformers.GenerationConfig(max_length=5, num_beams=2, pad_token_id=0, decoder_start_token_id=0)
        settings = {"generation_config": config}
    run = writer(tmp_path, **settings)
    rows = tiny.pair_rows(3)
    found = run.predict(rows, **call)
    assert found.predictions.shape[1] <= 5
    expected = [written_by_hand(run.model, row, max_length=5, num_beams=2) for row in rows]
    if how != "as_a_config":
        assert without_padding(found.predictions) == expected
    assert run.evaluate(**call)["eval_loss"] > 0


def test_metrics_of_texts(tmp_path: Path) -> None:
    tokenizer = tiny.tokenizer()
    seen: list[tuple[Any, Any]] = []

    def metrics(prediction: Any) -> dict[str, float]:
        texts = tokenizer.batch_decode(prediction.predictions, skip_special_tokens=True)
        references = tokenizer.batch_decode(prediction.label_ids, skip_special_tokens=True)
        seen.append((texts, references))
        return {"same": float(np.mean([text == other for text, other in zip(texts, references, strict=True)]))}

    run = writer(tmp_path, {"compute_metrics": metrics}, max_steps=2, eval_strategy="steps", eval_steps=1)
    run.train()
    assert list(runs.logged(run, "eval_same")) == [1, 2]
    assert len(seen[0][0]) == len(seen[0][1]) == 5


def test_generating_changes_no_training(tmp_path: Path) -> None:
    """Sampling draws at random; training draws what it would draw without it."""
    plain = writer(tmp_path, {"model": tiny.t5(dropout_rate=0.2)}, max_steps=4)
    plain.train()
    parts = {"model": tiny.t5(dropout_rate=0.2), "compute_metrics": lambda prediction: {}}
    config = transformers.GenerationConfig(do_sample=True, max_length=6, pad_token_id=0, decoder_start_token_id=0)
    run = writer(tmp_path, parts, max_steps=4, eval_strategy="steps", eval_steps=1, generation_config=config)
    run.train()
    assert runs.difference(plain.model, run.model) == 0.0


def test_loss_is_that_of_the_plain_evaluation(tmp_path: Path) -> None:
    run = writer(tmp_path)
    plain = writer(tmp_path, predict_with_generate=False)
    assert run.evaluate(max_length=4)["eval_loss"] == pytest.approx(plain.evaluate()["eval_loss"], rel=1e-6)
    assert plain.predict(tiny.pair_rows(2)).predictions[0].shape[-1] == tiny.NUM_WORDS


def test_prediction_without_labels(tmp_path: Path) -> None:
    run = writer(tmp_path)
    rows = [{name: value for name, value in row.items() if name != "labels"} for row in tiny.pair_rows(3)]
    found = run.predict(rows, max_length=6)
    assert found.label_ids is None
    assert len(found.predictions) == 3
    assert "test_loss" not in found.metrics


def test_decoder_only_models_continue_the_prompt(tmp_path: Path) -> None:
    """What comes after the prompt, which is the part without labels; prompts of unequal length."""
    model = tiny.llama(eos_token_id=None)
    model.generation_config.eos_token_id = None
    rows = []
    for number, row in enumerate(tiny.text_rows(4)):
        ids = row["input_ids"]
        prompt = 2 + number % 2
        rows.append({**row, "labels": [-100] * prompt + ids[prompt:]})
    collator = transformers.DataCollatorForTokenClassification(tiny.tokenizer())
    run = writer(tmp_path, {"model": model, "data_collator": collator}, per_device_eval_batch_size=4)
    found = run.predict(rows, max_new_tokens=3, do_sample=False)
    for number, row in enumerate(rows):
        prompt = torch.tensor([row["input_ids"][: 2 + number % 2]])
        expected = model.eval().generate(prompt, max_new_tokens=3, do_sample=False)[0, prompt.shape[1] :]
        assert found.predictions[number].tolist() == expected.tolist()


def test_an_override_is_given_the_decoding(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Own(Seq2SeqTrainer):
        def prediction_step(
            self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None, **decoding: Any
        ) -> Any:
            found = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys, max_length=3, **decoding)
            seen.append(found[1].shape)
            return found

    usual = writer(tmp_path)
    run = Own(
        model=usual.model, args=usual.args, data_collator=usual.data_collator, processing_class=usual.processing_class
    )
    run.predict(tiny.pair_rows(2), max_length=9)
    assert seen[0][1] <= 3


def test_plain_settings(tmp_path: Path) -> None:
    """TrainingArguments without the fields of generation serve too."""
    run = writer(tmp_path, {"args": runs.arguments(tmp_path, max_steps=1)})
    run.train()
    assert not run.generates
