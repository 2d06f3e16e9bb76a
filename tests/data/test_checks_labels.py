"""Labels that a head cannot learn from are refused; what it can learn from passes, as the model itself shows."""

from __future__ import annotations

from typing import Any

import datasets
import pytest
import tiny
import torch

from burnish.core.errors import DataError
from burnish.data.checks import check_training_data
from burnish.models.contract import facts_of

NAN = float("nan")

Labels = list[Any]


def rows_of(labels: Labels, name: str = "labels") -> list[dict[str, Any]]:
    return [{"input_ids": tiny.words(4, i), name: label} for i, label in enumerate(labels)]


def refusal(labels: Labels, model: Any, kind: str = "list", name: str = "labels") -> str:
    rows = rows_of(labels, name)
    with pytest.raises(DataError) as caught:
        check_training_data(rows if kind == "list" else datasets.Dataset.from_list(rows), facts=facts_of(model))
    return str(caught.value)


def classifier(**settings: Any) -> Any:
    return tiny.bert("SequenceClassification", **settings)


ONE_CLASS: dict[str, Any] = {"num_labels": 3}
SET_ONE_CLASS: dict[str, Any] = {"num_labels": 3, "problem_type": "single_label_classification"}
SEVERAL: dict[str, Any] = {"num_labels": 3, "problem_type": "multi_label_classification"}
NUMBER: dict[str, Any] = {"num_labels": 1}
NUMBERS: dict[str, Any] = {"num_labels": 2, "problem_type": "regression"}


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        (ONE_CLASS, [0, 1, 2]),
        (ONE_CLASS, [0, -100, 2]),
        (ONE_CLASS, [True, False, True]),
        (ONE_CLASS, [[0], [1], [2]]),
        (ONE_CLASS, [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
        (SET_ONE_CLASS, [0, 1, 2]),
        (SEVERAL, [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
        (NUMBER, [0.5, -100.0, 1e6]),
        (NUMBER, [1, 2, 3]),
        (NUMBER, [[0.5], [1.5]]),
        (NUMBERS, [[0.5, 1.0], [1.5, 2.0]]),
    ],
)
def test_what_a_classifier_learns_from_passes(settings: dict[str, Any], labels: Labels) -> None:
    model = classifier(**settings)
    for name in ("labels", "label"):
        check_training_data(rows_of(labels, name), facts=facts_of(model))
        check_training_data(datasets.Dataset.from_list(rows_of(labels, name)), facts=facts_of(model))
    ids = torch.tensor([row["input_ids"] for row in rows_of(labels)])
    values = torch.tensor(labels)
    assert torch.isfinite(model(ids, labels=values if values.is_floating_point() else values.long()).loss)


@pytest.mark.parametrize("kind", ["list", "table"])
@pytest.mark.parametrize(
    ("settings", "labels", "said"),
    [
        (ONE_CLASS, [0, 1, 7, 7], ["row 2 has label 7", "num_labels=3", "1 more row has"]),
        (ONE_CLASS, [0, 1, 3], ["row 2 has label 3", "subtract 1"]),
        (ONE_CLASS, [0, -1, 2], ["row 1 has label -1", "num_labels=3"]),
        (ONE_CLASS, [0.0, 1.0, 2.0], ["row 0 has the label 0.0, a float", "3 classes", "int"]),
        (SET_ONE_CLASS, [0.0, 1.0, 2.0], ["row 0 has the label 0.0, a float", "int"]),
        (SET_ONE_CLASS, [[0.0, 1.0, 1.0]] * 2, ["float", "int"]),
        (ONE_CLASS, [0, None, 2, None], ["row 1 has no label (None)", "1 more row has"]),
        (ONE_CLASS, [[0, 1, 1], [1, 0, 0]], ["row 0 has 3 labels", "multi_label_classification", "3 floats"]),
        (ONE_CLASS, [[0.0, 1.0], [1.0, 0.0]], ["row 0 has 2 label values", "num_labels=3"]),
        (SEVERAL, [[0, 1, 1], [1, 0, 0]], ["row 0, position 0", "an int", "3 floats"]),
        (SEVERAL, [[0.0, 1.0, 1.0], [1.0, 0.0]], ["row 1 has 2 label values", "num_labels=3"]),
        (SEVERAL, [1.0, 0.0], ["row 0 has 1 label value,", "num_labels=3"]),
        (SEVERAL, [[0.0, 1.0, 1.0], [0.0, NAN, 0.0]], ["row 1, position 1 has the label nan"]),
        (NUMBER, [0.5, NAN, 1.0], ["row 1 has the label nan"]),
        (NUMBER, [0.5, float("inf")], ["row 1 has the label inf"]),
        (NUMBER, ["3.5", "4"], ["labels are text (row 0: '3.5')", 'float(row["']),
        (SEVERAL, [[0.0, 2.0, 1.0]], ["row 0, position 1 has the label 2.0, outside 0 to 1"]),
        (NUMBERS, [[0.5, 1.0], [0.5]], ["row 1 has 1 label value,", "num_labels=2"]),
    ],
)
def test_what_a_classifier_cannot_learn_from(
    settings: dict[str, Any], labels: Labels, said: list[str], kind: str
) -> None:
    for name in ("labels", "label"):
        message = refusal(labels, classifier(**settings), kind, name)
        assert [part for part in said if part not in message] == [], message
        assert f"train_dataset, `{name}`" in message


@pytest.mark.parametrize("kind", ["list", "table"])
def test_text_labels_come_with_a_mapping(kind: str) -> None:
    said = refusal(["pos", "neg", "pos", "new"], classifier(num_labels=3), kind)
    assert "the labels are text: 'neg', 'new', 'pos' (row 0: 'pos')" in said
    assert "{'neg': 0, 'new': 1, 'pos': 2}" in said


@pytest.mark.parametrize("kind", ["list", "table"])
@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([[0, 1, 2, -100], [0, 1, 5, 3]], ["row 1, position 2 has label 5", "num_labels=3"]),
        ([[0, 1, 2, 0], [0, 1, 2]], ["row 1", "`labels` has 3 values, but `input_ids` has 4"]),
        ([[0, 1, 2, 0], [0, None, 2, 0]], ["row 1, position 1 has no label"]),
        ([[0.0, 1.0, 2.0, 0.0]], ["row 0, position 0 has the label 0.0"]),
        ([["O", "B-PER", "O", "O"]], ["labels are text: 'B-PER', 'O'"]),
        ([1, 2], ["row 0 has the single label 1", "one a token"]),
    ],
)
def test_what_a_tagger_cannot_learn_from(labels: Labels, said: list[str], kind: str) -> None:
    message = refusal(labels, tiny.bert("TokenClassification", num_labels=3), kind)
    assert [part for part in said if part not in message] == [], message


@pytest.mark.parametrize("build", [tiny.llama, tiny.t5, lambda: tiny.bert("MaskedLM")])
def test_what_a_language_model_cannot_learn_from(build: Any) -> None:
    model = build()
    assert "row 1, position 3 has label 96" in refusal([[5, 6, 7, 8], [5, 6, 7, 96]], model)
    assert "vocab_size=96" in refusal([[5, 6, 7, 8], [5, 6, 7, -1]], model)
    assert "DataCollatorForLanguageModeling" in refusal([1, 0], model)
    check_training_data(rows_of([[5, -100, 7, 8]]), facts=facts_of(model))


def test_labels_of_a_sequence_to_sequence_model_have_a_length_of_their_own() -> None:
    check_training_data(rows_of([[5], [5, 6, 7, 8, 9, 10]]), facts=facts_of(tiny.t5()))
    assert "`labels` has 1 values, but `input_ids` has 4" in refusal([[5]], tiny.llama())


def test_positions_of_answers_are_counted_from_0() -> None:
    facts = facts_of(tiny.bert("QuestionAnswering"))
    rows = [{**row, "start_positions": 1, "end_positions": 2} for row in tiny.text_rows(4)]
    check_training_data(rows, facts=facts)
    rows[2]["end_positions"] = -1
    with pytest.raises(DataError, match="`end_positions`: row 2 is -1, but positions are counted from 0"):
        check_training_data(rows, facts=facts)
    rows[2]["end_positions"] = 1.5
    with pytest.raises(DataError, match=r"row 2 has the label 1\.5"):
        check_training_data(rows, facts=facts)


@pytest.mark.parametrize("kind", ["list", "table"])
def test_choices_are_counted_from_0(kind: str) -> None:
    facts = facts_of(tiny.bert("MultipleChoice"))
    rows = [{"input_ids": [[5, 6], [7], [8, 9, 10]], "label": i} for i in range(3)]
    check_training_data(rows, facts=facts)
    rows[1]["label"] = 3
    with pytest.raises(DataError, match="row 1 has label 3"):
        check_training_data(rows if kind == "list" else datasets.Dataset.from_list(rows), facts=facts)


def of(head: str, **row: Any) -> str:
    rows = [{"input_ids": tiny.words(4, 0), **row}] * 2
    with pytest.raises(DataError) as caught:
        check_training_data(rows, facts=facts_of(tiny.bert(head, num_labels=2)))
    return str(caught.value)


def test_labels_of_a_further_head_are_not_those_of_words() -> None:
    model = tiny.bert("PreTraining")
    row = {"input_ids": tiny.words(4, 0), "labels": [5, -100, 6, 7], "next_sentence_label": 1}
    check_training_data([row] * 2, facts=facts_of(model))
    with pytest.raises(DataError, match="`next_sentence_label`: row 0 has label 2, outside 0 to 1"):
        check_training_data([{**row, "next_sentence_label": 2}], facts=facts_of(model))


def test_a_choice_that_there_is_not() -> None:
    assert "row 0 has label 4, but 2 choices, counted from 0: 0 to 1" in of(
        "MultipleChoice", input_ids=[[5, 6], [7, 8]], labels=4
    )


def test_an_answer_needs_a_start_and_an_end() -> None:
    said = of("QuestionAnswering", start_positions=1)
    assert "has `start_positions` and no `end_positions`" in said and "add the column `end_positions`" in said


def test_targets_that_are_still_text_are_to_be_tokenised() -> None:
    said = of("MaskedLM", labels="a text")
    assert "labels are text (row 0: 'a text')" in said and "tokenizer(text_target=" in said


def test_an_answer_beyond_its_row_is_told(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"input_ids": tiny.words(4, 0), "start_positions": 1, "end_positions": end} for end in (2, 4, 512)]
    check_training_data(rows, facts=facts_of(tiny.bert("QuestionAnswering")))
    (record,) = caplog.records
    assert "row 1: `end_positions` is 4, beyond the last token" in record.getMessage()
    assert "1 more row has" in record.getMessage()
