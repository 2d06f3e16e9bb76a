"""Columns that the model does not take are left out and named; a column that may be labels is a warning."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import datasets
import pytest
import tiny

from burnish.core.errors import DataError
from burnish.data.collators import default_data_collator
from burnish.data.columns import KeepColumns, kept_columns, label_suspects, select_columns
from burnish.models.contract import ModelFacts, facts_of

ACCEPTS = frozenset({"input_ids", "attention_mask", "labels"})


@pytest.fixture(scope="module")
def facts() -> ModelFacts:
    return facts_of(tiny.bert("SequenceClassification"))


def table(label: str = "labels") -> datasets.Dataset:
    rows = [{**row, "text": f"text {i}", "idx": i, label: i % 2} for i, row in enumerate(tiny.text_rows(4))]
    return datasets.Dataset.from_list(rows)


@pytest.mark.parametrize("label", ["labels", "label", "label_ids", "mine"])
def test_kept_are_arguments_and_labels_in_the_order_of_the_dataset(label: str) -> None:
    columns = ["text", label, "idx", "attention_mask", "input_ids"]
    for accepts_any in (False, True):
        kept = kept_columns(columns, ACCEPTS, accepts_any, ("mine",))
        assert kept == [label, "attention_mask", "input_ids"]


def test_a_module_that_takes_any_keyword_gets_every_column() -> None:
    assert kept_columns(["x", "y"], frozenset(), True, ()) == ["x", "y"]
    assert kept_columns(["x", "labels"], frozenset({"labels"}), True, ("labels",)) == ["x", "labels"]
    assert kept_columns(["x", "z"], frozenset({"x"}), True, ()) == ["x"]


def test_select_columns_says_what_it_leaves_out(facts: ModelFacts, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        selected = select_columns(table(), facts)
    assert set(selected.column_names) == {"input_ids", "attention_mask", "labels"}
    assert "text" in caplog.text and "idx" in caplog.text
    assert all(record.levelno == logging.INFO for record in caplog.records)


@pytest.mark.parametrize("name", ["sentiment", "target", "class", "score", "label_id", "y", "ner_tags", "outcome"])
def test_labels_under_another_name_are_a_warning(
    facts: ModelFacts, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    select_columns(table(label=name), facts)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"If `{name}` holds the labels" in record.getMessage()
    assert f"dataset.rename_column('{name}', 'labels')" in record.getMessage()


def test_no_warning_where_labels_are_there_or_not_expected(facts: ModelFacts, caplog: pytest.LogCaptureFixture) -> None:
    select_columns(table().add_column("score", [1, 2, 3, 4]), facts)
    select_columns(table(label="score"), facts, expects_labels=False)
    select_columns(table(label="score"), facts, label_names=("score",))
    assert not caplog.records


def test_label_suspects_are_named_like_labels_or_are_single_numbers() -> None:
    assert label_suspects({"text": "a", "star_rating": "5", "outcome": 1}) == ["star_rating"]
    assert label_suspects({"text": "a", "outcome": 1, "idx": 3, "num_words": 2, "guid": "x"}) == ["outcome"]
    assert label_suspects({"text": "a", "tokens": [1, 2]}) == []


def test_nothing_left_lists_both_sides(facts: ModelFacts) -> None:
    for label in ("rating", "label"):
        data = datasets.Dataset.from_dict({"sentence": ["a"], label: [1]})
        said = rf"columns sentence, {label}, and BertForSequenceClassification.*input_ids.*Tokenise"
        with pytest.raises(DataError, match=said):
            select_columns(data, facts)


def test_a_transform_keeps_the_columns_that_it_reads(facts: ModelFacts) -> None:
    data = table().with_transform(lambda batch: batch)
    assert select_columns(data, facts) is data


def test_streams_and_lists(facts: ModelFacts) -> None:
    stream = select_columns(table().to_iterable_dataset(), facts)
    assert set(next(iter(stream))) == {"input_ids", "attention_mask", "labels"}
    rows = tiny.class_rows(2)
    assert select_columns(rows, facts) is rows


def test_keep_columns_prunes_rows_and_survives_a_pickle(facts: ModelFacts) -> None:
    collate = pickle.loads(pickle.dumps(KeepColumns.of(default_data_collator, facts)))
    row: dict[str, Any] = {"input_ids": [5, 6], "labels": 1, "idx": 3, "text": "a"}
    assert set(collate([row, row])) == {"input_ids", "labels"}
    assert set(row) == {"input_ids", "labels", "idx", "text"}


def test_keep_columns_lets_other_rows_pass() -> None:
    assert KeepColumns(list, ACCEPTS)([(1, 2), (3, 4)]) == [(1, 2), (3, 4)]
    assert KeepColumns(list, frozenset(), or_all=True)([{"x": 1}]) == [{"x": 1}]
