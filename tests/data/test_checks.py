"""Datasets that cannot be trained on are refused, with the row, the value and what to do; good ones pass."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import datasets
import numpy as np
import pytest
import tiny
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from burnish.core.errors import DataError
from burnish.data.checks import check_training_data
from burnish.models.contract import ModelFacts, facts_of

CLASSIFIER = facts_of(tiny.bert("SequenceClassification", num_labels=3))
TAGGER = facts_of(tiny.bert("TokenClassification", num_labels=3))
CAUSAL = facts_of(tiny.llama())
SEQ2SEQ = facts_of(tiny.t5())


class Computed(Dataset[Any]):
    """A dataset of the user's own, that counts what is asked of it."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows, self.asked = rows, 0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        return self.rows[index]


def as_transform(rows: list[dict[str, Any]]) -> datasets.Dataset:
    table = datasets.Dataset.from_dict({"number": list(range(len(rows)))})
    return table.with_transform(lambda batch: {name: [rows[i][name] for i in batch["number"]] for name in rows[0]})


def as_arrays(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: np.asarray(value) for name, value in row.items()} for row in rows]


def as_tensors(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: torch.as_tensor(value) for name, value in row.items()} for row in rows]


def as_shuffled_table(rows: list[dict[str, Any]]) -> datasets.Dataset:
    """A table whose rows are picked from a larger one, in another order."""
    table = datasets.Dataset.from_list([*rows[:3], *reversed(rows)])
    return table.select(range(len(table) - 1, 2, -1)).with_format("torch")


KINDS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "list": list,
    "arrays": as_arrays,
    "tensors": as_tensors,
    "table": datasets.Dataset.from_list,
    "shuffled table": as_shuffled_table,
    "transform": as_transform,
    "computed": Computed,
}
kinds = pytest.mark.parametrize("kind", KINDS)


def refusal(dataset: Any, facts: ModelFacts = CLASSIFIER, **settings: Any) -> str:
    with pytest.raises(DataError) as caught:
        check_training_data(dataset, facts=facts, **settings)
    return str(caught.value)


# ---------------------------------------------------------------- good data


@kinds
@pytest.mark.parametrize(
    ("facts", "rows"),
    [
        (CLASSIFIER, tiny.class_rows(8, 3)),
        (TAGGER, tiny.tag_rows(8)),
        (CAUSAL, tiny.language_rows(8)),
        (SEQ2SEQ, tiny.pair_rows(8)),
    ],
    ids=["classes", "tags", "causal", "seq2seq"],
)
def test_good_data_pass(kind: str, facts: ModelFacts, rows: list[dict[str, Any]]) -> None:
    check_training_data(KINDS[kind](rows), facts=facts, batch_size=4)


def test_streams_are_not_read() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("read")

    check_training_data(Stream(), facts=CLASSIFIER)
    check_training_data(datasets.Dataset.from_list(tiny.class_rows(2)).to_iterable_dataset(), facts=CLASSIFIER)
    assert "forward takes no input" in refusal(datasets.Dataset.from_dict({"text": ["a"]}).to_iterable_dataset())


def test_rows_without_names_are_left_to_the_collator() -> None:
    check_training_data(TensorDataset(torch.ones(3, 2), torch.ones(3)), facts=CLASSIFIER)


def test_the_random_state_is_left_as_it_was() -> None:
    class Noisy(Computed):
        def __getitem__(self, index: int) -> Any:
            torch.rand(3)
            return super().__getitem__(index)

    before = torch.get_rng_state()
    data = Noisy(tiny.class_rows(4))
    check_training_data(data, facts=CLASSIFIER)
    assert torch.equal(torch.get_rng_state(), before)
    assert data.asked == 5  # row 0 once more for its columns


# ---------------------------------------------------------------- shape of the dataset


@pytest.mark.parametrize("empty", [[], datasets.Dataset.from_list(tiny.class_rows(2)).select([]), Computed([])])
def test_empty(empty: Any) -> None:
    assert "eval_dataset is empty (0 rows)" in refusal(empty, name="eval_dataset")


def test_fewer_rows_than_a_batch() -> None:
    rows = tiny.class_rows(3)
    said = refusal(rows, batch_size=4, drop_last=True)
    assert "3 rows" in said and "batch of 4" in said and "dataloader_drop_last=False" in said
    check_training_data(rows, facts=CLASSIFIER, batch_size=4, drop_last=False)
    check_training_data(rows, facts=CLASSIFIER, batch_size=3, drop_last=True)


def test_a_dict_of_datasets() -> None:
    said = refusal(datasets.DatasetDict(train=datasets.Dataset.from_list(tiny.class_rows(2))))
    assert "train" in said and "pass one of them" in said


@pytest.mark.parametrize("kind", ["list", "table", "computed"])
@pytest.mark.parametrize("beside", [{}, {"attention_mask": [1, 1]}])
def test_not_tokenised(kind: str, beside: dict[str, Any]) -> None:
    said = refusal(KINDS[kind]([{"review": "good", "label": 1, **beside}] * 4))
    assert "review" in said and "input_ids" in said and "okenise" in said


def test_a_plain_module_is_given_what_it_names() -> None:
    class Plain(torch.nn.Module):
        def forward(self, x: Any, labels: Any = None) -> Any:
            return x

    class TakesAll(torch.nn.Module):
        def forward(self, **batch: Any) -> Any:
            return batch

    check_training_data([{"x": [1.0], "labels": 0.5}], facts=facts_of(Plain()))
    check_training_data([{"z": [1.0], "target": 0.5}], facts=facts_of(TakesAll()))
    assert "labels, x" in refusal([{"z": [1.0], "labels": 0.5}], facts_of(Plain()))


@pytest.mark.parametrize("kind", ["list", "table", "transform"])
def test_labels_under_another_name(kind: str) -> None:
    rows = [{**row, "sentiment": row["labels"]} for row in tiny.class_rows(4)]
    rows = [{name: value for name, value in row.items() if name != "labels"} for row in rows]
    said = refusal(KINDS[kind](rows))
    assert "no labels" in said and "If `sentiment` holds the labels" in said
    check_training_data(KINDS[kind](rows), facts=CLASSIFIER, labels_required=False)


def test_labels_that_a_collator_makes() -> None:
    rows = tiny.text_rows(4)
    assert "DataCollatorForLanguageModeling" in refusal(rows, CAUSAL)
    check_training_data(rows, facts=CAUSAL, collator_makes_labels=True)
    check_training_data(tiny.class_rows(4), facts=CAUSAL, collator_makes_labels=True)


@kinds
def test_uneven_rows_where_nothing_pads(kind: str) -> None:
    rows = KINDS[kind](tiny.class_rows(4))
    said = refusal(rows, batch_size=2, collator_pads=False)
    assert "`input_ids`" in said and "row 0: 4, row 1: 17" in said and "DataCollatorWithPadding" in said
    check_training_data(rows, facts=CLASSIFIER, batch_size=1, collator_pads=False)


# ---------------------------------------------------------------- tokens


@kinds
@pytest.mark.parametrize("bad", [96, -1])
def test_token_outside_the_vocabulary(kind: str, bad: int) -> None:
    rows = tiny.class_rows(16, 3)
    rows[11]["input_ids"][2] = rows[11]["input_ids"][3] = rows[13]["input_ids"][0] = bad
    said = refusal(KINDS[kind](rows))
    assert f"row 11, position 2: token id {bad} " in said and "vocab_size=96" in said
    assert "resize_token_embeddings" in said and "1 more row has" in said


@kinds
def test_row_longer_than_the_positions(kind: str) -> None:
    rows = tiny.class_rows(16, 3)
    for i in (11, 12, 15):
        rows[i] = {"input_ids": tiny.words(30, i), "attention_mask": [1] * 30, "labels": 0}
    said = refusal(KINDS[kind](rows))
    assert "row 11 has 30 tokens" in said and "hold 24" in said and "max_length=24" in said
    assert "2 more rows have" in said


def test_length_counts_attended_tokens() -> None:
    padded = {"input_ids": tiny.words(30, 0), "attention_mask": [1] * 24 + [0] * 6, "labels": 0}
    check_training_data([padded] * 2, facts=CLASSIFIER)
    without_mask = {"input_ids": tiny.words(30, 0), "labels": 0}
    assert "30 tokens" in refusal([without_mask] * 2)


def test_mask_of_another_length() -> None:
    rows = tiny.class_rows(4)
    rows[2]["attention_mask"] = rows[2]["attention_mask"][1:]
    said = refusal(rows)
    assert "row 2" in said and "`attention_mask` has 8 values, but `input_ids` has 9" in said


@pytest.mark.parametrize("kind", ["list", "table"])
def test_rows_without_tokens_in_them(kind: str) -> None:
    rows = tiny.class_rows(4)
    rows[3]["input_ids"] = None
    assert "row 3: `input_ids` has no value" in refusal(KINDS[kind](rows))


# ---------------------------------------------------------------- how much is read


def test_long_tables_are_read_whole() -> None:
    count = 25_000
    tokens, labels = np.full((count, 4), 5), np.arange(count) % 3
    labels[[12_345, 24_999]] = 7
    table = datasets.Dataset.from_dict({"input_ids": tokens, "labels": labels})
    said = refusal(table)
    assert "row 12345 has label 7" in said and "1 more row has" in said
    assert "row 12345 has label 7" in refusal([{"input_ids": [5], "labels": int(label)} for label in labels])


def test_long_computed_datasets_are_sampled() -> None:
    row = tiny.class_rows(1)[0]
    data = Computed([row] * 50_000)
    check_training_data(data, facts=CLASSIFIER)
    assert 1000 < data.asked <= 20_001


# ---------------------------------------------------------------- a collator of the user's own


def test_what_a_users_collator_may_put_right_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    check_training_data([{"text": "a", "stars": "good"}] * 2, facts=CLASSIFIER, rows_are_inputs=False)
    assert not caplog.records
    rows = tiny.class_rows(4)
    rows[2]["labels"] = 3
    check_training_data(rows, facts=CLASSIFIER, rows_are_inputs=False)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "row 2 has label 3" in record.getMessage()
