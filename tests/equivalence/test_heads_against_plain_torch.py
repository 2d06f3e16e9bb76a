"""One step of plain gradient descent applies the gradient of all its rows together, for every head and every split.

The reference is plain PyTorch: the rows as one padded batch, the model's own loss, one backward.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers

from burnish import Trainer, TrainingArguments

ROWS = 8
RELATIVE = 1e-4  # rounding is near 1e-6; a wrong divisor changes the gradient by tens of per cent
Collator = Callable[[list[tiny.Row]], dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Head:
    model: Callable[[], Any]
    rows: Callable[[], list[tiny.Row]]
    collator: Callable[[], Collator]
    alone: bool = False
    """The reference puts each row through the model alone: the model's own loss of a batch depends on its padding."""


def with_padding() -> Collator:
    return transformers.DataCollatorWithPadding(tiny.tokenizer())


def with_padded_labels() -> Collator:
    return transformers.DataCollatorForTokenClassification(tiny.tokenizer())


def regression_rows() -> list[tiny.Row]:
    return [{**row, "labels": 0.5 * number - 1.0} for number, row in enumerate(tiny.text_rows(ROWS))]


def multi_label_rows() -> list[tiny.Row]:
    texts = enumerate(tiny.text_rows(ROWS))
    return [{**row, "labels": [float(number >> bit & 1) for bit in range(3)]} for number, row in texts]


def choice_rows() -> list[tiny.Row]:
    """Three texts a row, of one length within the row."""
    rows = []
    for number in range(ROWS):
        length = tiny.length_of(number)
        texts = [tiny.words(length, 3 * number + choice) for choice in range(3)]
        rows.append({"input_ids": texts, "attention_mask": [[1] * length] * 3, "labels": number % 3})
    return rows


def answer_rows() -> list[tiny.Row]:
    texts = enumerate(tiny.text_rows(ROWS))
    return [{**row, "start_positions": number % 3, "end_positions": 1 + number % 3} for number, row in texts]


def masked_rows() -> list[tiny.Row]:
    """One to four masked tokens a row: each weighs the same."""
    rows = []
    for number, row in enumerate(tiny.text_rows(ROWS)):
        count, ids = 1 + number % 4, row["input_ids"]
        labels = ids[:count] + [-100] * (len(ids) - count)
        rows.append({**row, "input_ids": [tiny.MASK] * count + ids[count:], "labels": labels})
    return rows


HEADS = {
    "sequence_classification": Head(
        lambda: tiny.bert("SequenceClassification"), lambda: tiny.class_rows(ROWS), with_padding
    ),
    "regression": Head(lambda: tiny.bert("SequenceClassification", num_labels=1), regression_rows, with_padding),
    "multi_label": Head(
        lambda: tiny.bert("SequenceClassification", num_labels=3, problem_type="multi_label_classification"),
        multi_label_rows,
        with_padding,
    ),
    "multiple_choice": Head(
        lambda: tiny.bert("MultipleChoice"),
        choice_rows,
        lambda: transformers.DataCollatorForMultipleChoice(tiny.tokenizer()),
    ),
    "question_answering": Head(lambda: tiny.bert("QuestionAnswering"), answer_rows, with_padding, alone=True),
    "token_classification": Head(
        lambda: tiny.bert("TokenClassification", num_labels=3), lambda: tiny.tag_rows(ROWS), with_padded_labels
    ),
    "masked_lm": Head(lambda: tiny.bert("MaskedLM"), masked_rows, with_padded_labels),
    "causal_lm": Head(tiny.llama, lambda: tiny.language_rows(ROWS), with_padded_labels),
    "seq2seq": Head(
        tiny.t5, lambda: tiny.pair_rows(ROWS), lambda: transformers.DataCollatorForSeq2Seq(tiny.tokenizer())
    ),
}


def plain_gradient(head: Head) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradient of all rows as one padded batch, or row by row."""
    model = head.model().train()
    rows = copy.deepcopy(head.rows())
    batches = [[row] for row in rows] if head.alone else [rows]
    loss = torch.stack([model(**head.collator()(batch)).loss for batch in batches]).mean()
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def applied_gradient(head: Head, folder: Path, batch: int) -> tuple[float, dict[str, torch.Tensor]]:
    """Logged loss, and what one step at rate 1 took from the weights."""
    model = head.model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    args = TrainingArguments(
        output_dir=str(folder),
        max_steps=1,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=ROWS // batch,
        learning_rate=1.0,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        logging_steps=1,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=head.rows(),
        data_collator=head.collator(),
        optimizers=(optimizer, None),
    )
    trainer.train()
    loss = next(entry["loss"] for entry in trainer.state.log_history if "loss" in entry)
    return loss, {name: before[name] - p.detach() for name, p in model.named_parameters()}


def relative_difference(one: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> float:
    """The size of the difference by the size of the reference, over all parameters of the reference."""
    gap = sum((one[name] - value).double().square().sum().item() for name, value in reference.items())
    size = sum(value.double().square().sum().item() for value in reference.values())
    return (gap / size) ** 0.5


@pytest.mark.parametrize("batch", [8, 2, 1])
@pytest.mark.parametrize("name", HEADS)
def test_one_step(name: str, batch: int, tmp_path: Path) -> None:
    loss, gradient = plain_gradient(HEADS[name])
    logged, applied = applied_gradient(HEADS[name], tmp_path, batch)
    assert logged == pytest.approx(loss, abs=1e-4)
    assert relative_difference(applied, gradient) < RELATIVE
