"""Evaluation and prediction that write text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import transformers
from trainer import runs

from burnish import Seq2SeqTrainer, Seq2SeqTrainingArguments
from burnish.core.errors import DataError, SettingError
from burnish.generation.continuous import Continuous
from burnish.generation.fits import Fit


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


# ---------------------------------------------------------------- texts of evaluations


def prompt_rows(count: int) -> list[dict[str, Any]]:
    """Rows of a decoder-only model with prompts of 2 to 8 tokens."""
    return [
        {**row, "labels": [-100] * (2 + number % 7) + row["input_ids"][2 + number % 7 :]}
        for number, row in enumerate(tiny.text_rows(count + 20)[20:])
        if len(row["input_ids"]) > 9
    ]


def chatty(folder: Path, parts: dict[str, Any] | None = None, **settings: Any) -> Any:
    """A trainer of a decoder-only model."""
    collator = transformers.DataCollatorForTokenClassification(tiny.tokenizer())
    rows = prompt_rows(24)
    usual = {"model": tiny.llama(), "train_dataset": rows, "eval_dataset": rows, "data_collator": collator}
    return writer(folder, {**usual, **(parts or {})}, **{"generation_max_length": 5, **settings})


def texts_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_texts_are_written_beside_the_metrics_and_some_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = chatty(tmp_path, max_steps=2, eval_strategy="steps", eval_steps=1, generation_max_rows=4, learning_rate=0.0)
    run.train()
    assert sorted(path.name for path in (tmp_path / "texts").iterdir()) == ["eval-1.jsonl", "eval-2.jsonl"]
    texts = texts_in(tmp_path / "texts" / "eval-1.jsonl")
    rows, tokenizer = run.eval_dataset, tiny.tokenizer()
    assert [text["row"] for text in texts] == np.linspace(0, len(rows) - 1, 4).round().tolist()
    for text in texts:
        row = rows[text["row"]]
        prompt = [token for token, label in zip(row["input_ids"], row["labels"], strict=True) if label == -100]
        alone = run.model.generate(torch.tensor([prompt]), max_new_tokens=5, do_sample=False)[0, len(prompt) :]
        assert text["prompt"] == tokenizer.decode(prompt)
        assert text["reference"] == tokenizer.decode(row["input_ids"][len(prompt) :])
        assert text["generated"] == tokenizer.decode(alone, skip_special_tokens=True)
    said = capsys.readouterr().out
    assert f"generating texts for 4 rows of {len(rows)} (generation_max_rows)" in said and "eval-1.jsonl" in said
    assert said.count("generated  ") == 6 and texts[0]["generated"] in said
    assert list(runs.logged(run, "eval_gen_len")) == [1, 2]


def test_a_sample_is_for_evaluations_and_the_loss_is_of_all_rows(tmp_path: Path) -> None:
    seen: list[Any] = []

    def metrics(prediction: Any) -> dict[str, float]:
        seen.append((prediction.predictions.shape, prediction.label_ids.shape))
        return {}

    run = chatty(tmp_path, {"compute_metrics": metrics}, generation_max_rows=3)
    plain = chatty(tmp_path, predict_with_generate=False)
    assert run.evaluate()["eval_loss"] == pytest.approx(plain.evaluate()["eval_loss"], rel=1e-6)
    assert seen[0][0][0] == seen[0][1][0] == 3
    assert len(run.predict(run.eval_dataset).predictions) == len(run.eval_dataset)
    run.args.generation_max_rows = 0
    run.evaluate()
    assert seen[-1][0][0] == len(run.eval_dataset)


def test_labels_are_what_the_row_has_in_place_of_the_text(tmp_path: Path) -> None:
    run = chatty(tmp_path)
    rows = run.eval_dataset
    found = run.predict(rows)
    assert without_padding(found.label_ids) == [[t for t in row["labels"] if t != -100] for row in rows]
    assert (found.predictions >= 0).all() and (found.label_ids >= 0).all()


@pytest.mark.parametrize("workers", [0, 1])
def test_neither_batches_nor_workers_matter(workers: int, tmp_path: Path) -> None:
    """Nor whether tokens are drawn."""
    config = transformers.GenerationConfig(do_sample=True, temperature=2.0, max_new_tokens=6)
    settings = {"generation_config": config, "dataloader_num_workers": workers}
    found = [
        chatty(tmp_path, per_device_eval_batch_size=size, **settings).predict(prompt_rows(24)).predictions.tolist()
        for size in (2, 16)
    ]
    assert found[0] == found[1]
    other = chatty(tmp_path, seed=1, **settings).predict(prompt_rows(24)).predictions.tolist()
    assert other != found[0]


def test_a_dict_of_datasets_is_decoded_as_asked(tmp_path: Path) -> None:
    run = chatty(tmp_path, {"eval_dataset": {"one": prompt_rows(12), "two": prompt_rows(16)}})
    run.evaluate(max_new_tokens=2, min_new_tokens=2)
    for name in ("one", "two"):
        texts = texts_in(tmp_path / "texts" / f"eval_{name}-0.jsonl")
        assert texts and all(len(text["generated"].split()) <= 2 for text in texts)
    assert run.evaluate(max_new_tokens=2, min_new_tokens=2)["eval_two_gen_len"] == 2
    assert run.evaluate()["eval_two_gen_len"] > 2  # the next call is asked anew


def test_prompts_of_a_column(tmp_path: Path) -> None:
    """The rows themselves have a target everywhere."""
    rows = [{**row, "labels": row["input_ids"], "question": f"w7 w{8 + i}"} for i, row in enumerate(tiny.text_rows(5))]
    rows[3]["input_ids"] = rows[3]["labels"] = [7, 11, 50, 51]
    rows[3]["attention_mask"] = [1] * 4
    run = chatty(tmp_path, {"eval_dataset": rows}, generation_prompt_column="question")
    run.evaluate()
    texts = texts_in(tmp_path / "texts" / "eval-0.jsonl")
    assert [text["prompt"] for text in texts] == [row["question"] for row in rows]
    assert texts[3]["reference"] == "w50 w51"
    alone = run.model.generate(torch.tensor([[7, 11]]), max_new_tokens=5, do_sample=False)[0, 2:]
    assert texts[3]["generated"] == tiny.tokenizer().decode(alone, skip_special_tokens=True)
    with pytest.raises(DataError, match=r"Row 0 has no column 'answer'"):
        chatty(tmp_path, {"eval_dataset": rows}, generation_prompt_column="answer").evaluate()


def test_rows_without_a_prompt_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{**row, "labels": row["input_ids"]} for row in tiny.text_rows(3)]
    found = chatty(tmp_path).predict(rows).predictions
    assert "3 of 3 rows have no prompt" in caplog.text
    assert found[0].tolist() == found[1].tolist() == found[2].tolist()  # each begins with the first token of all


@pytest.mark.parametrize("checkpointing", [False, True])
def test_texts_in_a_run_are_those_of_the_model_by_itself(checkpointing: bool, tmp_path: Path) -> None:
    """Whose layers leave padding out, and keep no cache, while it is trained."""
    seen: list[Any] = []
    run = chatty(
        tmp_path,
        {"compute_metrics": lambda prediction: seen.append(prediction.predictions.tolist()) or {}},
        max_steps=2, eval_strategy="steps", eval_steps=2, gradient_checkpointing=checkpointing, learning_rate=0.05,
    )  # fmt: skip
    run.train()
    assert run.tried is not None and run.tried.padding_free
    rows = prompt_rows(24)
    for found, row in zip(seen[0], rows, strict=True):
        prompt = [token for token, label in zip(row["input_ids"], row["labels"], strict=True) if label == -100]
        alone = run.model.eval().generate(torch.tensor([prompt]), max_new_tokens=5, do_sample=False, use_cache=True)
        assert [t for t in found if t != tiny.PAD] == [t for t in alone[0, len(prompt) :].tolist() if t != tiny.PAD]


def test_an_adapter_is_part_of_what_writes(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = tiny.seeded(lambda: peft.get_peft_model(tiny.llama(), config))
    run = chatty(tmp_path, {"model": model})
    rows = prompt_rows(24)
    found = run.predict(rows).predictions
    assert run._held_writer.fit, "generate was needed"
    prompt = [token for token, label in zip(rows[0]["input_ids"], rows[0]["labels"], strict=True) if label == -100]
    given = {"input_ids": torch.tensor([prompt]), "max_new_tokens": 5, "do_sample": False}
    alone = model.eval().generate(**given)[0, len(prompt) :].tolist()
    assert [t for t in found[0].tolist() if t != tiny.PAD] == [t for t in alone if t != tiny.PAD]
    with model.disable_adapter():
        assert model.generate(**given)[0, len(prompt) :].tolist() != alone


def test_a_prompt_that_is_learnt_is_left_to_generate(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    run = chatty(tmp_path, {"model": tiny.seeded(lambda: peft.get_peft_model(tiny.llama(), config))})
    assert len(run.predict(prompt_rows(24)).predictions) == len(prompt_rows(24))
    assert run._held_writer.fit is False


def test_a_stream_is_written_in_its_order(tmp_path: Path) -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(prompt_rows(24))

    whole = chatty(tmp_path).predict(prompt_rows(24)).predictions.tolist()
    assert chatty(tmp_path).predict(Stream()).predictions.tolist() == whole
    run = chatty(tmp_path, {"eval_dataset": Stream()}, generation_max_rows=3)
    run.evaluate()
    assert [text["row"] for text in texts_in(tmp_path / "texts" / "eval-0.jsonl")] == [0, 1, 2]


def test_memory_that_runs_out_is_met_with_fewer_texts_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = chatty(tmp_path).predict(prompt_rows(24)).predictions.tolist()
    step = Continuous.step

    def fails_above_3(self: Any, texts: Any) -> Any:
        if len(texts) > 3:
            raise torch.OutOfMemoryError("no memory for that many")
        return step(self, texts)

    monkeypatch.setattr(Continuous, "step", fails_above_3)
    assert chatty(tmp_path).predict(prompt_rows(24)).predictions.tolist() == whole
    assert "at most 2 texts" in caplog.text
    monkeypatch.setattr(Continuous, "step", lambda *_: 1 / 0)
    run = chatty(tmp_path)
    run._writer().fit = Fit(2, None, 256)
    with pytest.raises(ZeroDivisionError):
        run.predict(prompt_rows(24))


def test_a_metric_by_name_reads_the_texts(tmp_path: Path) -> None:
    run = chatty(tmp_path, {"compute_metrics": "exact_match"})
    assert run.evaluate()["eval_exact_match"] == 0.0


def test_a_model_that_writes_no_text_is_refused(tmp_path: Path) -> None:
    args = runs.arguments(tmp_path, Seq2SeqTrainingArguments, predict_with_generate=True)
    run = Seq2SeqTrainer(model=runs.classifier(), args=args, processing_class=tiny.tokenizer())
    with pytest.raises(SettingError, match="BertForSequenceClassification writes no text"):
        run.predict(tiny.class_rows(2))


def test_no_new_tokens_are_refused(tmp_path: Path) -> None:
    args = runs.arguments(tmp_path, Seq2SeqTrainingArguments, predict_with_generate=True)
    run = Seq2SeqTrainer(model=tiny.llama(), args=args, processing_class=tiny.tokenizer())
    with pytest.raises(SettingError, match="max_new_tokens=0: expected 1 or more"):
        run.predict(tiny.language_rows(2), max_new_tokens=0)
