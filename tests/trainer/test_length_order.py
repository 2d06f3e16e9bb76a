"""Evaluation and prediction by length: the results are those of dataset order, in dataset order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import tiny
import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader
from trainer import runs

from burnish import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainerCallback
from burnish.run.evaluation import batches_to_evaluate, batches_to_predict
from burnish.run.length_order import ByLength

ROWS = 23


class AsTheyStand(Trainer):
    """Reads in dataset order, since the loaders are its own."""

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        return super().get_test_dataloader(test_dataset)


def span_rows(count: int) -> list[tiny.Row]:
    return [{**row, "start_positions": 1, "end_positions": 2 + i % 2} for i, row in enumerate(tiny.text_rows(count))]


def padded_rows(count: int) -> list[tiny.Row]:
    """All of one length, with the padding in the data."""
    rows = []
    for row in tiny.tag_rows(count):
        missing = tiny.MAX_LENGTH - len(row["input_ids"])
        fill = {"input_ids": tiny.PAD, "attention_mask": 0, "labels": -100}
        rows.append({name: value + [fill[name]] * missing for name, value in row.items()})
    return rows


KINDS: dict[str, tuple[Callable[[], Any], Callable[[int], list[tiny.Row]]]] = {
    "classes": (lambda: tiny.bert("SequenceClassification"), tiny.class_rows),
    "tags": (lambda: tiny.bert("TokenClassification", num_labels=3), tiny.tag_rows),
    "padded tags": (lambda: tiny.bert("TokenClassification", num_labels=3), padded_rows),
    "spans": (lambda: tiny.bert("QuestionAnswering"), span_rows),
    "language": (tiny.llama, tiny.language_rows),
    "pairs": (tiny.t5, tiny.pair_rows),
    "no transformers model": (lambda: Pooled(), tiny.class_rows),
}


class Pooled(nn.Module):
    """Means of embeddings of real tokens."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(tiny.NUM_WORDS, 8), nn.Linear(8, 2)

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any = None) -> dict[str, torch.Tensor]:
        real = attention_mask.unsqueeze(-1)
        logits = self.head((self.table(input_ids) * real).sum(1) / real.sum(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def made(folder: Path, kind: str, cls: Any = Trainer, parts: dict[str, Any] | None = None, **settings: Any) -> Any:
    build, rows = KINDS[kind]
    collator = transformers.DataCollatorForTokenClassification
    if rows is tiny.class_rows:
        collator = transformers.DataCollatorWithPadding
    elif kind == "pairs":
        collator = transformers.DataCollatorForSeq2Seq
    usual = {"model": build(), "train_dataset": rows(8), "data_collator": collator(tiny.tokenizer())}
    return runs.trainer(folder, cls, {**usual, **(parts or {})}, **settings)


def flat(nested: Any) -> list[Any]:
    return [array for part in nested for array in flat(part)] if isinstance(nested, tuple) else [nested]


def assert_same(found: Any, expected: Any, rows: list[tiny.Row]) -> None:
    """Equal loss, labels, and predictions at the tokens of each row; what padding predicts means nothing."""
    assert found.metrics["test_loss"] == pytest.approx(expected.metrics["test_loss"], rel=1e-6)
    for one, other in zip(flat(found.label_ids), flat(expected.label_ids), strict=True):
        assert np.array_equal(one, other)
    for one, other in zip(flat(found.predictions), flat(expected.predictions), strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        for number, row in enumerate(rows):
            taken = tokens_of(row, one.shape, rows)
            assert np.allclose(one[number][taken], other[number][taken], atol=2e-6), number


def tokens_of(row: tiny.Row, shape: tuple[int, ...], rows: list[tiny.Row]) -> Any:
    """The places of its tokens, or of its labels, in an array that has a place for each."""
    for name, is_real in (("attention_mask", bool), ("labels", lambda label: label != -100)):
        if len(shape) > 1 and isinstance(row.get(name), list) and shape[1] == max(len(other[name]) for other in rows):
            return [place for place, value in enumerate(row[name]) if is_real(value)]
    return slice(None)


@pytest.mark.parametrize("kind", KINDS)
def test_results_of_dataset_order(kind: str, tmp_path: Path) -> None:
    rows = KINDS[kind][1](ROWS)
    expected = made(tmp_path, kind, AsTheyStand).predict(rows)
    for settings in ({}, {"token_budget": 40}, {"per_device_eval_batch_size": 1}, {"dataloader_num_workers": 2}):
        run = made(tmp_path, kind, **settings)
        batches = batches_to_predict(run, rows)
        assert isinstance(batches, ByLength)
        assert_same(run.predict(rows), expected, rows)
        assert run.evaluate(rows)["eval_loss"] == pytest.approx(expected.metrics["test_loss"], rel=1e-6)
    table = datasets.Dataset.from_list(rows)
    assert_same(made(tmp_path, kind).predict(table), expected, rows)


@pytest.mark.parametrize("kind", ["tags", "language"])
def test_the_same_before_in_and_after_training(kind: str, tmp_path: Path) -> None:
    rows = KINDS[kind][1](ROWS)
    settings = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 1}
    losses, afterwards = [], []
    for cls in (Trainer, AsTheyStand):
        run = made(tmp_path, kind, cls, {"eval_dataset": rows}, **settings)
        before = run.evaluate()["eval_loss"]
        run.train()
        losses.append([before, *runs.logged(run, "eval_loss").values()])
        afterwards.append(run.predict(rows))
        assert run.model.config._attn_implementation == "sdpa"
    assert losses[0] == pytest.approx(losses[1], rel=2e-6)
    assert_same(*afterwards, rows)


def test_layers_leave_padding_out_without_a_training_before(tmp_path: Path) -> None:
    """And only while it is evaluated."""
    run = made(tmp_path, "tags", parts={"eval_dataset": tiny.tag_rows(ROWS)})
    seen = []
    run.model.bert.encoder.layer[0].register_forward_hook(lambda *given: seen.append(given[2].shape[0]))
    run.evaluate()
    assert run.tried.padding_free
    assert 1 in seen[-2:]
    seen.clear()
    run.model(torch.tensor([[5, 6, 7], [8, 9, 0]]), attention_mask=torch.tensor([[1, 1, 1], [1, 1, 0]]))
    assert seen == [2]


def test_long_rows_come_first_and_the_budget_holds(tmp_path: Path) -> None:
    run = made(tmp_path, "tags", parts={"eval_dataset": tiny.tag_rows(ROWS)}, token_budget=50)
    batches = batches_to_evaluate(run, None)
    numbered = list(batches.numbered())
    assert 6 < len(numbered) < ROWS
    lengths = [tiny.length_of(row) for batch in numbered for row in batch.rows]
    assert lengths == sorted(lengths, reverse=True)
    assert sorted(row for batch in numbered for row in batch.rows) == list(range(ROWS))
    assert all(batch.num_tokens <= 50 for batch in numbered)


def test_the_public_loader_is_in_dataset_order(tmp_path: Path) -> None:
    rows = tiny.class_rows(ROWS)
    run = runs.trainer(tmp_path, parts={"eval_dataset": rows})
    run.evaluate()
    labels = torch.cat([batch["labels"] for batch in run.get_eval_dataloader()])
    assert labels.tolist() == [row["labels"] for row in rows]
    assert len(run.get_eval_dataloader()) == 6


def test_what_callbacks_are_given(tmp_path: Path) -> None:
    """The loader in dataset order, with as many batches as there are events."""
    seen: list[Any] = []

    class Watch(TrainerCallback):
        def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            seen.append(kwargs["eval_dataloader"])

    rows = tiny.class_rows(ROWS)
    for budget in (1000, 30):
        run = runs.trainer(tmp_path, parts={"eval_dataset": rows, "callbacks": [Watch()]}, token_budget=budget)
        run.evaluate()
        assert len(seen) == len(seen[0]) == 6
        assert torch.cat([batch["labels"] for batch in seen[0]]).tolist() == [row["labels"] for row in rows]
        assert run.num_examples(seen[0]) == ROWS
        seen.clear()


class OwnPredictionStep(Trainer):
    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        return super().prediction_step(*args, **kwargs)


class OwnLoop(Trainer):
    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        return super().evaluation_loop(*args, **kwargs)


class OwnLoss(Trainer):
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)


@pytest.mark.parametrize("cls", [OwnPredictionStep, OwnLoop, OwnLoss])
def test_code_that_sees_batches_sees_them_as_they_stand(cls: Any, tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, cls, {"eval_dataset": tiny.class_rows(9)})
    assert isinstance(batches_to_evaluate(run, None), DataLoader)
    assert isinstance(batches_to_predict(run, tiny.class_rows(9)), DataLoader)
    assert run.evaluate()["eval_loss"] > 0


class Contrasting(Pooled):
    """Each row is told from the others of its batch."""

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any = None) -> dict[str, torch.Tensor]:
        logits = super().forward(input_ids, attention_mask, labels)["logits"]
        return {"loss": nn.functional.cross_entropy(logits @ logits.T, torch.arange(len(logits))), "logits": logits}


class SeesPadding(Pooled):
    """Takes padding for tokens."""

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any = None) -> dict[str, torch.Tensor]:
        logits = self.head(self.table(input_ids).mean(1))
        return {"logits": logits} if labels is None else super().forward(input_ids, torch.ones_like(input_ids), labels)


@pytest.mark.parametrize("kind", [Contrasting, SeesPadding])
def test_rows_that_depend_on_their_batch(kind: Any, tmp_path: Path) -> None:
    run = runs.trainer(tmp_path, parts={"model": kind(), "eval_dataset": tiny.class_rows(9)})
    assert isinstance(batches_to_evaluate(run, None), DataLoader)


def test_rows_without_labels(tmp_path: Path) -> None:
    """Outputs are compared in place of losses."""
    rows = tiny.text_rows(ROWS)
    run = made(tmp_path, "tags")
    batches = batches_to_predict(run, rows)
    assert isinstance(batches, ByLength) and batches.leaves_padding_out
    found, expected = run.predict(rows), made(tmp_path, "tags", AsTheyStand).predict(rows)
    for number, row in enumerate(rows):
        tokens = len(row["input_ids"])
        assert np.allclose(found.predictions[number, :tokens], expected.predictions[number, :tokens], atol=1e-6)
    assert isinstance(batches_to_predict(runs.trainer(tmp_path, parts={"model": SeesPadding()}), rows), DataLoader)


def test_rows_whose_lengths_are_not_known(tmp_path: Path) -> None:
    class Computed(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, number: int) -> Any:
            return tiny.class_rows(5)[number]

    run = runs.trainer(tmp_path)
    assert isinstance(batches_to_evaluate(run, Computed()), DataLoader)
    stream = datasets.Dataset.from_list(tiny.class_rows(9)).to_iterable_dataset()
    assert run.evaluate(stream)["eval_loss"] == pytest.approx(run.evaluate(tiny.class_rows(9))["eval_loss"], rel=1e-6)


def test_a_dict_of_sets_and_a_set_by_name(tmp_path: Path) -> None:
    sets = {"few": tiny.class_rows(5), "more": datasets.Dataset.from_list(tiny.class_rows(ROWS))}
    found = runs.trainer(tmp_path, parts={"eval_dataset": sets}).evaluate()
    expected = runs.trainer(tmp_path, AsTheyStand, {"eval_dataset": sets}).evaluate()
    for name in ("eval_few_loss", "eval_more_loss"):
        assert found[name] == pytest.approx(expected[name], rel=1e-6)
    run = runs.trainer(tmp_path, parts={"eval_dataset": sets})
    assert run.evaluate("more")["eval_loss"] == pytest.approx(expected["eval_more_loss"], rel=1e-6)


def test_random_masks_are_the_same_every_time(tmp_path: Path) -> None:
    """Whatever the budget, and before and after a training: masks go with rows."""
    losses = []
    for budget in (None, 30):
        collator = transformers.DataCollatorForLanguageModeling(tiny.tokenizer(), mlm_probability=0.3)
        parts = {"model": tiny.bert("MaskedLM"), "data_collator": collator, "train_dataset": tiny.text_rows(8)}
        run = runs.trainer(tmp_path, parts=parts, token_budget=budget, max_steps=1, learning_rate=0.0)
        losses.append(run.evaluate(tiny.text_rows(ROWS))["eval_loss"])
        run.train()
        losses.append(run.evaluate(tiny.text_rows(ROWS))["eval_loss"])
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-6)


def test_metrics_get_everything_in_dataset_order(tmp_path: Path) -> None:
    seen: list[Any] = []
    rows = tiny.class_rows(ROWS)
    parts = {"eval_dataset": rows, "compute_metrics": lambda given: seen.append(given) or {}}
    parts["preprocess_logits_for_metrics"] = lambda logits, labels: logits.argmax(-1)
    for cls in (Trainer, AsTheyStand):
        runs.trainer(tmp_path, cls, parts, include_for_metrics=["inputs"]).evaluate()
    for (*arrays, inputs), (*expected, expected_inputs) in [seen]:
        assert all(np.array_equal(one, other) for one, other in zip(arrays, expected, strict=True))
        assert np.array_equal(np.where(inputs > 0, inputs, 0), np.where(expected_inputs > 0, expected_inputs, 0))


def test_generated_texts(tmp_path: Path) -> None:
    class Plain(AsTheyStand, Seq2SeqTrainer):
        pass

    found = []
    for cls in (Seq2SeqTrainer, Plain):
        arguments = runs.arguments(tmp_path, Seq2SeqTrainingArguments, predict_with_generate=True)
        run = cls(
            model=tiny.t5(), args=arguments, processing_class=tiny.tokenizer(),
            data_collator=transformers.DataCollatorForSeq2Seq(tiny.tokenizer()),
        )  # fmt: skip
        found.append(run.predict(tiny.pair_rows(ROWS), max_length=7, num_beams=2))
        unlabelled = [{name: row[name] for name in ("input_ids", "attention_mask")} for row in tiny.pair_rows(ROWS)]
        found.append(run.predict(unlabelled, max_length=7, num_beams=2))
    for one, other in zip(found[:2], found[2:], strict=True):
        assert np.array_equal(one.predictions, other.predictions)
    assert np.array_equal(found[0].label_ids, found[2].label_ids)
    assert found[0].metrics["test_loss"] == pytest.approx(found[2].metrics["test_loss"], rel=1e-6)


def test_a_row_that_cannot_be_computed_is_named_as_before(tmp_path: Path) -> None:
    rows = tiny.class_rows(9)
    rows[5] = {**rows[5], "input_ids": [tiny.NUM_WORDS + 3] * len(rows[5]["input_ids"])}
    with pytest.raises(ValueError, match="row 5"):
        runs.trainer(tmp_path).evaluate(rows)
