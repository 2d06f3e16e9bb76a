"""Rows of streams and computed rows are refused when they are read, with the same words as rows of a list."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import tiny
import torch

from burnish.core.errors import DataError
from burnish.data.checks import check_training_data
from burnish.data.checks_as_read import RowChecks
from burnish.models.contract import facts_of

CLASSIFIER = facts_of(tiny.bert("SequenceClassification", num_labels=3))


def checks(**changes: Any) -> RowChecks:
    return RowChecks("train_dataset", CLASSIFIER, ("labels",), **changes)


def rows(**changes: Any) -> list[tuple[int, Any]]:
    """Rows 7, 8 and 9, the last of them changed."""
    made = [(number, {**row}) for number, row in enumerate(tiny.class_rows(3, num_labels=3), start=7)]
    made[-1][1].update(changes)
    return made


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": 7},
        {"labels": -1},
        {"labels": None},
        {"labels": 0.5},
        {"labels": "good"},
        {"input_ids": tiny.words(30, 0), "attention_mask": [1] * 30},
        {"input_ids": [5, 96], "attention_mask": [1, 1]},
        {"input_ids": [], "attention_mask": []},
        {"input_ids": None},
    ],
)
def test_the_words_are_those_for_a_list(changes: dict[str, Any]) -> None:
    whole = [*tiny.class_rows(7, num_labels=3), *(row for _, row in rows(**changes))]
    with pytest.raises(DataError) as of_list:
        check_training_data(whole, facts=CLASSIFIER)
    with pytest.raises(DataError) as as_read:
        checks()(rows(**changes))
    assert str(as_read.value) == str(of_list.value)
    assert "row 9" in str(as_read.value)


def test_good_rows_pass_and_rows_without_names_are_left_to_the_collator() -> None:
    checks()(rows())
    checks()([(0, ([5, 6], 1))])
    checks()(rows(labels=-100))


def test_labels_need_not_be_there_for_a_prediction() -> None:
    bare = [(number, {"input_ids": row["input_ids"]}) for number, row in rows()]
    checks(labels_required=False)(bare)
    checks(makes_labels=True)(bare)
    with pytest.raises(DataError, match="train_dataset has no labels"):
        checks()(bare)


def test_a_column_that_may_hold_the_labels_is_named() -> None:
    with pytest.raises(DataError, match="If `sentiment` holds the labels"):
        checks()([(0, {"input_ids": [5, 6], "sentiment": 1})])


def test_a_batch_of_one_within_a_row() -> None:
    with pytest.raises(DataError, match=r"shape \(1, 2\), a sequence within another.*return_tensors"):
        checks()([(0, {"input_ids": torch.tensor([[5, 6]]), "labels": 1})])


def test_they_go_to_workers() -> None:
    with pytest.raises(DataError, match="row 9 has label 7"):
        pickle.loads(pickle.dumps(checks()))(rows(labels=7))
