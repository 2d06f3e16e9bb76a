"""Evaluation, prediction and texts of a divided model, and what user code may do with it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import tiny
import torch
import transformers
from distributed.forked import in_processes, values
from distributed.test_fsdp import whole
from torch.distributed.tensor import DTensor
from trainer import runs

import burnish
from burnish.core.errors import SettingError

FSDP = {"fsdp": True}


def judged(folder: Path, rows: int, train: bool, **settings: Any) -> dict[str, Any]:
    parts = {"model": runs.classifier(num_labels=7), "compute_metrics": "accuracy"}
    run = runs.trainer(folder, parts=parts, per_device_eval_batch_size=2, max_steps=2, **settings)
    if train:
        run.args.per_device_train_batch_size = 4 // run.args.world_size
        run.train()
    dataset = tiny.class_rows(rows, num_labels=7)
    found, metrics = run.predict(dataset), run.evaluate(dataset)
    return {
        "predictions": found.predictions,
        "labels": found.label_ids,
        "loss": metrics["eval_loss"],
        "accuracy": metrics["eval_accuracy"],
    }


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("rows", [7, 1])
def test_every_row_once_in_the_order_of_the_dataset(rows: int, train: bool, tmp_path: Path) -> None:
    """Also where there are fewer rows than processes, and before the first step."""
    alone = judged(tmp_path / "alone", rows, train)
    for found in values(in_processes(2, tmp_path, judged, tmp_path / "together", rows, train, **FSDP)):
        assert found["labels"].tolist() == alone["labels"].tolist()
        np.testing.assert_allclose(found["predictions"], alone["predictions"], atol=1e-5)
        assert found["loss"] == pytest.approx(alone["loss"], rel=1e-5)
        assert found["accuracy"] == alone["accuracy"]


def prompts(count: int) -> list[dict[str, Any]]:
    return [{**row, "labels": [-100] * 3 + row["input_ids"][3:]} for row in tiny.text_rows(count)]


def adapted() -> Any:
    return peft.get_peft_model(tiny.llama(), peft.LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"))


WRITERS: dict[str, tuple[Any, Any]] = {
    "decoder": (tiny.llama, prompts),
    "adapters": (adapted, prompts),
    "encoder and decoder": (tiny.t5, tiny.pair_rows),
}


def texts(folder: Path, kind: str, count: int, beams: int, **settings: Any) -> Any:
    """Texts of unequal length, of unequally many rows for each process."""
    build, rows = WRITERS[kind]
    given = {"predict_with_generate": True, "generation_max_length": 12, "per_device_eval_batch_size": 2, **settings}
    args = runs.arguments(folder, burnish.Seq2SeqTrainingArguments, generation_num_beams=beams, **given)
    collator = transformers.DataCollatorForSeq2Seq(tiny.tokenizer()) if kind.startswith("encoder") else None
    collator = collator or transformers.DataCollatorForTokenClassification(tiny.tokenizer())
    run = burnish.Seq2SeqTrainer(
        model=build(), args=args, data_collator=collator, processing_class=tiny.tokenizer(), eval_dataset=rows(4)
    )
    found = run.predict(rows(count))
    return found.predictions.tolist(), found.metrics["test_loss"], run.evaluate()["eval_gen_len"]


@pytest.mark.parametrize(("count", "beams"), [(7, 1), (5, 2), (1, 1)])
@pytest.mark.parametrize("kind", WRITERS)
def test_texts_are_those_of_one_process(kind: str, count: int, beams: int, tmp_path: Path) -> None:
    """Of one row, the other process has none to write, while the first one tries out how the model is decoded."""
    alone = texts(tmp_path / "alone", kind, count, beams)
    for found in values(in_processes(2, tmp_path, texts, tmp_path / "together", kind, count, beams, **FSDP)):
        assert found[0] == alone[0]
        assert found[1:] == pytest.approx(alone[1:], rel=1e-5)


def written_first(folder: Path, **settings: Any) -> Any:
    """Rows without labels: texts are the first that is computed with the model, and begin with its encoder."""
    args = runs.arguments(folder, burnish.Seq2SeqTrainingArguments, predict_with_generate=True, **settings)
    collator = transformers.DataCollatorForSeq2Seq(tiny.tokenizer())
    run = burnish.Seq2SeqTrainer(model=tiny.t5(), args=args, data_collator=collator, processing_class=tiny.tokenizer())
    return run.predict(tiny.text_rows(3), max_new_tokens=4).predictions.tolist()


def test_texts_before_any_loss(tmp_path: Path) -> None:
    alone = written_first(tmp_path / "alone")
    assert values(in_processes(2, tmp_path, written_first, tmp_path / "together", **FSDP)) == [alone, alone]


def of_images(folder: Path, **settings: Any) -> Any:
    """Texts of one image: what is no text is written on batch by batch, also by a process that has none."""
    given = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "hidden_size": 16}
    encoder = transformers.ViTConfig(image_size=8, patch_size=4, hidden_dropout_prob=0.0, **given)
    decoder = tiny.bert_config(is_decoder=True, add_cross_attention=True)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = tiny.seeded(lambda: transformers.VisionEncoderDecoderModel(config=config))
    tokens = {"decoder_start_token_id": tiny.CLS, "pad_token_id": tiny.PAD}
    model.config.update(tokens)
    model.generation_config.update(**tokens, eos_token_id=tiny.SEP)
    args = runs.arguments(folder, burnish.Seq2SeqTrainingArguments, predict_with_generate=True, **settings)
    run = burnish.Seq2SeqTrainer(model=model, args=args, data_collator=transformers.default_data_collator)
    found = run.predict([{"pixel_values": torch.ones(3, 8, 8), "labels": [7, 8, 9]}], max_new_tokens=4)
    return found.predictions.tolist(), found.metrics["test_loss"]


@pytest.mark.parametrize("settings", [{}, FSDP], ids=["ddp", "fsdp"])
def test_a_text_of_an_image(settings: dict[str, Any], tmp_path: Path) -> None:
    ids, loss = of_images(tmp_path / "alone")
    for found in values(in_processes(2, tmp_path, of_images, tmp_path / "together", **settings)):
        assert found[0] == ids and found[1] == pytest.approx(loss, rel=1e-5)


class OwnStep(burnish.Trainer):
    """A user's loss that goes around the forward pass of the model, in a user's own training step."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
        inner = getattr(model, "module", model)
        hidden = inner.bert(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).pooler_output
        logits = inner.classifier(hidden)
        loss = torch.nn.functional.cross_entropy(logits, inputs["labels"])
        return (loss, {"logits": logits}) if return_outputs else loss


def with_own_loss(folder: Path, processes: int, **settings: Any) -> Any:
    batch = 8 // processes
    parts = {"eval_dataset": tiny.class_rows(5)}
    run = runs.trainer(folder, OwnStep, parts=parts, max_steps=3, per_device_train_batch_size=batch, **settings)
    run.train()
    return whole(run.model), run.evaluate()["eval_loss"]


def test_a_loss_around_the_forward_pass(tmp_path: Path) -> None:
    alone = with_own_loss(tmp_path / "alone", 1)
    for found in values(in_processes(2, tmp_path, with_own_loss, tmp_path / "together", 2, **FSDP)):
        assert runs.difference(found[0], alone[0]) < 1e-5
        assert found[1] == pytest.approx(alone[1], rel=1e-5)


class Looks(burnish.TrainerCallback):
    """Calls the model and saves it, in the middle of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen = folder, []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        with torch.no_grad():
            self.seen.append(model(input_ids=torch.tensor([[5, 6, 7]])).logits.tolist())
        self.trainer.save_model(str(self.folder / f"own-{state.global_step}"))


def looked_at(folder: Path, **settings: Any) -> Any:
    callback = Looks(folder)
    run = runs.trainer(folder, parts={"callbacks": [callback]}, max_steps=2, learning_rate=0.1, **settings)
    callback.trainer = run
    run.train()
    again = run.train()  # the model is divided already
    return callback.seen, whole(run.model), again.global_step


def test_a_callback_may_call_and_save_the_model(tmp_path: Path) -> None:
    one, other = values(in_processes(2, tmp_path, looked_at, tmp_path / "run", **FSDP))
    assert one[0] == other[0] and one[0][0] != one[0][1] and one[2] == 2
    loaded = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "run" / "own-2").eval()
    assert runs.difference(loaded, one[1]) == 0.0
    seen = loaded(input_ids=torch.tensor([[5, 6, 7]])).logits
    np.testing.assert_allclose(one[0][-1], seen.tolist(), atol=1e-6)


def weights_to_begin_with(folder: Path) -> Any:
    """A model that every process has drawn for itself, and the others do not hold at all."""
    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)
    with torch.device("meta") if rank else torch.device("cpu"):
        model = transformers.BertForSequenceClassification(tiny.bert_config())
    run = runs.trainer(folder, parts={"model": model}, max_steps=1, learning_rate=1e-12, fsdp=True)
    run.train()
    return whole(run.model)


def test_all_processes_begin_with_the_weights_of_the_first(tmp_path: Path) -> None:
    torch.manual_seed(0)
    alone = transformers.BertForSequenceClassification(tiny.bert_config())
    for found in values(in_processes(2, tmp_path, weights_to_begin_with, tmp_path)):
        assert runs.difference(found, alone) < 1e-9


class Unequal(burnish.Trainer):
    """A loader of one's own; the data of the second process end early."""

    def get_train_dataloader(self) -> Any:
        rows = tiny.class_rows(9)
        own = rows[:7] if self.args.process_index == 0 else rows[7:]
        return torch.utils.data.DataLoader(own, 2, collate_fn=self.data_collator)


def uneven(folder: Path) -> Any:
    run = runs.trainer(folder, Unequal, num_train_epochs=2, fsdp=True)
    run.train()
    return run.state.global_step, run.state.num_examples_seen, runs.logged(run, "loss")


def test_data_that_end_early_on_one_process(tmp_path: Path) -> None:
    one, other = values(in_processes(2, tmp_path, uneven, tmp_path))
    assert one == other and one[:2] == (8, 18)


def refused(folder: Path, **settings: Any) -> Any:
    runs.trainer(folder, max_steps=1, **settings).train()


def on_the_first_alone(folder: Path, what: str) -> None:
    run = runs.trainer(folder, max_steps=1, **FSDP)
    run.train()
    if run.is_world_process_zero():
        calls = {
            "save_model": lambda: run.save_model(folder / "model"),
            "evaluate": lambda: run.evaluate(tiny.class_rows(4)),
            "predict": lambda: run.predict(tiny.class_rows(4)),
        }
        calls[what]()


@pytest.mark.parametrize("what", ["save_model", "evaluate", "predict"])
def test_the_first_process_alone_is_told_who_is_missing(what: str, tmp_path: Path) -> None:
    first, other = in_processes(2, tmp_path, on_the_first_alone, tmp_path / "out", what)
    assert other.error is None
    assert first.error == "ProcessError" and f"{what}()" in first.words and "called on every process" in first.words


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fsdp_config": {"transformer_layer_cls_to_wrap": "LlamaDecoderLayer"}}, "It has .*BertLayer"),
        ({"fsdp": "hybrid_shard", "fsdp_config": {"dp_shard_size": 3}}, "groups of 3"),
        ({"torch_compile": True}, "torch_compile"),
        ({"optim_in_backward": True, "max_grad_norm": 0}, "optim_in_backward"),
    ],
)
def test_what_does_not_go_together(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    for one in in_processes(2, tmp_path, refused, tmp_path, **{**FSDP, **settings}):
        assert one.error == "SettingError" and re.search(words, one.words), one


def test_one_process_divides_nothing(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"this run has one.*burnish train --num_processes 2"):
        runs.trainer(tmp_path, fsdp=True)


def divided_by_user(folder: Path) -> Any:
    """The weights are parts, moments too, and each process holds half of them."""
    run = runs.trainer(folder, max_steps=1, fsdp=True)
    run.train()
    held = sum(weight.to_local().numel() for weight in run.model.parameters())
    moments = [part for one in run.optimizer.state.values() for part in one.values() if part.dim()]
    return held, run.get_num_trainable_parameters(), all(isinstance(part, DTensor) for part in moments)


def test_each_process_holds_its_part(tmp_path: Path) -> None:
    one, other = values(in_processes(2, tmp_path, divided_by_user, tmp_path))
    assert one[0] + other[0] == one[1] == other[1] and one[2] and other[2]
    assert abs(one[0] - other[0]) < 0.1 * one[1]
