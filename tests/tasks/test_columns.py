from __future__ import annotations

from typing import Any

import datasets
import pytest

from burnish.core.errors import DataError
from burnish.tasks.columns import label_columns, text_columns, texts_of
from burnish.tasks.files import Table

LONG = [f"a long sentence about thing {i} and more" for i in range(6)]


def table(**columns: list[Any]) -> Table:
    return Table(datasets.Dataset.from_dict(columns), "data.csv")


def test_usual_names_come_first() -> None:
    rows = table(id=list(range(6)), Review=["a"] * 6, note=LONG, Stars=["1", "2"] * 3)
    assert text_columns(rows, None) == ["Review"]
    assert label_columns(rows, None) == ["Stars"]


def test_usual_pairs() -> None:
    rows = table(premise=LONG, hypothesis=LONG, label=[0, 1] * 3, text=LONG)
    assert text_columns(rows, None, ["label"]) == ["premise", "hypothesis"]


def test_by_type_where_no_name_is_usual() -> None:
    rows = table(number=[str(i) for i in range(6)], words=LONG, verdict=["yes", "no"] * 3)
    assert label_columns(rows, None) == ["verdict"]
    assert text_columns(rows, None, ["verdict"]) == ["words"]


def test_two_columns_that_could_be_meant() -> None:
    with pytest.raises(DataError, match=r"'one', 'two'.*--text_column"):
        text_columns(table(one=LONG, two=LONG, label=[0, 1] * 3), None, ["label"])
    with pytest.raises(DataError, match=r"'one', 'two'.*--label_column"):
        label_columns(table(text=LONG, one=["a", "b"] * 3, two=["c", "d"] * 3), None)


def test_no_column_of_text_and_none_of_labels() -> None:
    with pytest.raises(DataError, match=r"no column holds text"):
        text_columns(table(one=[1, 2], two=["3", "4"]), None)
    assert label_columns(table(text=LONG, other=LONG), None) == []


def test_a_misspelled_column() -> None:
    rows = table(sentence=LONG, label=[0, 1] * 3)
    with pytest.raises(DataError, match=r"data.csv.*'sentense'.*Did you mean 'sentence'.*'sentence', 'label'"):
        text_columns(rows, "sentense")
    with pytest.raises(DataError, match=r"'lable'.*--label_column"):
        label_columns(rows, "lable")


def test_several_columns_told() -> None:
    rows = table(**{"a": LONG, "b": LONG, "c,d": LONG})
    assert text_columns(rows, "a, b") == ["a", "b"]
    assert text_columns(rows, "c,d") == ["c,d"]
    with pytest.raises(DataError, match=r"at most 2"):
        text_columns(rows, "a,b,a")


@pytest.mark.parametrize("bad", ["", "  ", None, "nan"])
def test_a_missing_text_is_pointed_at(bad: Any) -> None:
    with pytest.raises(DataError, match=r"data.csv, row 2: the text in column 'text' is missing"):
        texts_of(table(text=["a", bad, "b"]), "text")


def test_numbers_are_texts_and_lists_are_not() -> None:
    assert texts_of(table(text=[1, 2]), "text") == ["1", "2"]
    with pytest.raises(DataError, match=r"row 1: column 'text' holds list"):
        texts_of(table(text=[["a"], ["b"]]), "text")
