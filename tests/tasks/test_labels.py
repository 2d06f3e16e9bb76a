from __future__ import annotations

from typing import Any

import datasets
import pytest

from burnish.core.errors import DataError
from burnish.tasks.files import Table
from burnish.tasks.label_values import has_labels
from burnish.tasks.labels import LabelScheme, class_balance, infer_scheme


def table(**columns: list[Any]) -> Table:
    return Table(datasets.Dataset.from_dict(columns), "data.csv")


def scheme(values: list[Any], **options: Any) -> LabelScheme:
    return infer_scheme(table(label=values), ["label"], **options)


@pytest.mark.parametrize(
    ("values", "names", "targets"),
    [
        (["neg", "pos", "neg"], ("neg", "pos"), [0, 1, 0]),
        (["10", "9", "1"], ("1", "9", "10"), [2, 1, 0]),
        ([3, 1, 3], ("1", "3"), [1, 0, 1]),
        ([1.0, 0.0, 2.0], ("0", "1", "2"), [1, 0, 2]),
        (["1.0", "-1", "-1"], ("-1", "1"), [1, 0, 0]),
        ([True, False, True], ("False", "True"), [1, 0, 1]),
        (["007", "08", "08"], ("007", "08"), [0, 1, 1]),
        (["sci-fi|horror", "romance", "romance"], ("romance", "sci-fi|horror"), [1, 0, 0]),
    ],
)
def test_classes(values: list[Any], names: tuple[str, ...], targets: list[int]) -> None:
    found = scheme(values)
    assert (found.problem_type, found.names) == ("single_label_classification", names)
    assert found.targets(table(label=values)) == targets
    assert found.config_changes()["label2id"] == {name: number for number, name in enumerate(names)}


@pytest.mark.parametrize(
    "values", [[1.5, 2.0, 3.0], ["0.1", "0.2", "1"], list(range(101)), [str(i) for i in range(101)]]
)
def test_numbers_are_a_regression(values: list[Any]) -> None:
    found = scheme(values)
    assert (found.kind, found.names) == ("regression", ("label",))
    assert found.targets(table(label=values)) == [float(value) for value in values]


@pytest.mark.parametrize(
    ("values", "targets"),
    [
        ([["b", "a"], ["a"], []], [[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]),
        (["a;b", "a", "b"], [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]),
        (["b | a", "a", "b"], [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]),
    ],
)
def test_several_labels_in_one_column(values: list[Any], targets: list[Any]) -> None:
    found = scheme(values)
    assert (found.kind, found.names) == ("multi-label classification, 2 labels", ("a", "b"))
    assert found.targets(table(label=values)) == targets


def test_several_label_columns() -> None:
    rows = table(x=["1", "0"], y=[True, True])
    found = infer_scheme(rows, ["x", "y"])
    assert (found.problem_type, found.names) == ("multi_label_classification", ("x", "y"))
    assert found.targets(rows) == [[1.0, 1.0], [0.0, 1.0]]
    with pytest.raises(DataError, match=r"row 2: column 'y' holds 'maybe'.*0 or 1"):
        infer_scheme(table(x=[1, 0], y=["1", "maybe"]), ["x", "y"])


def test_names_that_the_data_set_knows_keep_their_order() -> None:
    features = datasets.Features(label=datasets.ClassLabel(names=["zero", "another"]))
    rows = Table(datasets.Dataset.from_dict({"label": [1, 0, 1]}, features=features), "hub")
    found = infer_scheme(rows, ["label"])
    assert found.names == ("zero", "another") and found.targets(rows) == [1, 0, 1]
    hidden = Table(datasets.Dataset.from_dict({"label": [-1, -1]}, features=features), "hub")
    assert has_labels(rows, ["label"]) and not has_labels(hidden, ["label"]) and not has_labels(rows, ["other"])


def test_the_order_that_a_model_has_is_kept() -> None:
    assert scheme(["neg", "pos"], known=["pos", "neg"]).names == ("pos", "neg")
    assert scheme(["neg", "pos"], known=["LABEL_0", "LABEL_1"]).names == ("neg", "pos")


@pytest.mark.parametrize("bad", ["", None, "nan", "N/A"])
def test_a_missing_label_is_pointed_at(bad: Any) -> None:
    with pytest.raises(DataError, match=r"data.csv, row 3: the label in column 'label' is missing"):
        scheme(["1", "0", bad])


def test_nan_among_numbers() -> None:
    with pytest.raises(DataError, match=r"row 2.*missing .nan."):
        scheme([1.5, float("nan")])


def test_a_label_that_training_does_not_know() -> None:
    found = scheme(["neg", "pos"])
    with pytest.raises(DataError, match=r"row 2: the label 'neutral'.*'neg', 'pos'"):
        found.targets(table(label=["pos", "neutral"]))
    with pytest.raises(DataError, match=r"row 1: the label 'many'.*no number"):
        scheme([0.5, 1.5]).targets(table(label=["many", "1"]))


def test_labels_that_cannot_be_learnt() -> None:
    with pytest.raises(DataError, match=r"all rows have the label 'a'"):
        scheme(["a", "a"])
    with pytest.raises(DataError, match=r"row 2: the label 'x' .* is no number, while most are"):
        scheme(["1.5", "x", "2.5"])
    with pytest.raises(DataError, match=r"300 different values in 300 rows"):
        scheme([f"text {i}" for i in range(300)])


def test_the_kind_of_problem_can_be_told() -> None:
    assert scheme([1, 2, 3], problem_type="regression").kind == "regression"
    assert scheme(list(range(150)), problem_type="single_label_classification").kind == "150-class classification"
    with pytest.raises(DataError, match=r"problem_type='other' is unknown"):
        scheme([1, 2], problem_type="other")


def test_balance_in_words() -> None:
    found = scheme(["neg", "pos"])
    assert class_balance(found, [0, 1, 1, 1]) == "pos 3 (75 %), neg 1 (25 %)"
    assert class_balance(scheme([0.5, 1.5]), [0.5, 1.5]) == "0.5 to 1.5, mean 1"


@pytest.mark.parametrize("rows", [[[1, 0, 1], [0, 1, 0]], [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]])
def test_a_switch_for_each_label_is_no_list_of_names(rows: list[Any]) -> None:
    found = scheme(rows)
    assert (found.names, found.switches) == (("0", "1", "2"), True)
    assert found.targets(table(label=rows)) == [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    assert scheme(rows, known=["a", "b", "c"]).names == ("a", "b", "c")
    with pytest.raises(DataError, match=r"row 2: .*\[1, 0\], but the labels are lists of 3 zeros and ones"):
        found.targets(table(label=[[1, 0, 1], [1, 0]]))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[1, 0, 1], [0, 1]], r"row 1: .*the label '1' twice"),
        ([[0, 1], [0.5, 1]], r"row 2: .*the number 0.5"),
        ([[], []], r"no row has a label"),
        ([[["a"]], [["b"]]], r"row 1: .*is no label"),
    ],
)
def test_lists_that_are_no_labels(rows: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        scheme(rows)


def test_an_object_is_no_label() -> None:
    with pytest.raises(DataError, match=r"row 1: column 'label' holds .*which is no label"):
        scheme([{"a": 1}, {"a": 2}])


def test_names_that_are_one_number_have_one_order() -> None:
    names = [f"{'0' * zeros}7" for zeros in range(12)]
    assert scheme(names).names == tuple(sorted(names))
