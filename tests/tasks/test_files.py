from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from burnish.core.errors import DataError
from burnish.tasks.files import Table, read_table

ROWS = [{"text": "a, b", "label": "x"}, {"text": 'say "no"\nnow', "label": "y"}, {"text": "c", "label": "x"}]
CSV = 'text,label\n"a, b",x\n"say ""no""\nnow",y\nc,x\n'


def said(path: Path | str) -> str:
    with pytest.raises(DataError) as caught:
        read_table(path)
    return str(caught.value)


def rows_of(path: Path | str, **options: Any) -> list[dict[str, Any]]:
    return read_table(path, **options).to_list()


@pytest.mark.parametrize(
    "name", ["a.csv", "a.csv.gz", "a.tsv", "a.json", "b.json", "a.jsonl", "a.jsonl.gz", "a.parquet"]
)
def test_every_format_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    lines = "".join(json.dumps(row) + "\n\n" for row in ROWS)
    content = {
        "a.csv": "\ufeff" + CSV,  # with the byte order mark that spreadsheets write
        "a.csv.gz": CSV,
        "a.tsv": 'text\tlabel\na, b\tx\n"say ""no""\nnow"\ty\nc\tx\n',
        "a.json": json.dumps(ROWS),
        "b.json": json.dumps({"data": ROWS}),
        "a.jsonl": lines,
        "a.jsonl.gz": lines,
    }
    path = tmp_path / name
    if name == "a.parquet":
        datasets.Dataset.from_list(ROWS).to_parquet(str(path))
    elif name.endswith(".gz"):
        path.write_bytes(gzip.compress(content[name].encode()))
    else:
        path.write_text(content[name], encoding="utf-8")
    assert rows_of(path) == ROWS
    assert rows_of(path) == ROWS  # the second time from the cache


def test_values_of_a_csv_stay_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\nNA,007\nnull,1.50\n")
    assert rows_of(tmp_path / "a.csv") == [{"text": "NA", "label": "007"}, {"text": "null", "label": "1.50"}]


def test_semicolons_and_a_row_number_written_by_pandas(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(";text;label\n0;a, b;x\n1;c;y\n")
    assert rows_of(tmp_path / "a.csv") == [{"text": "a, b", "label": "x"}, {"text": "c", "label": "y"}]


def test_quotes_between_tabs_are_characters(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"no, he said\tx\nfine" again\ty\n"say ""no"""\tx\n')
    assert [row["text"] for row in rows_of(path)] == ['"no, he said', 'fine" again', 'say "no"']
    assert Table(read_table(path), str(path)).place(1) == f"{path}, row 2 (line 3)"


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\na,1\n")
    read_table(path)
    path.write_text("text,label\nb,1\n")
    assert rows_of(path) == [{"text": "b", "label": "1"}]


def test_saved_folders_and_their_splits(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_list(ROWS)
    rows.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict(train=rows, test=rows.select([0])).save_to_disk(str(tmp_path / "two"))
    assert rows_of(tmp_path / "one") == ROWS
    assert rows_of(tmp_path / "two", split="test") == ROWS[:1]
    with pytest.raises(DataError, match=r"no split 'validation'.*'train', 'test'"):
        read_table(tmp_path / "two", "validation")


def test_a_long_text_is_no_error_and_the_limit_of_csv_is_left_alone(tmp_path: Path) -> None:
    import csv

    before = csv.field_size_limit()
    (tmp_path / "a.csv").write_text("text,label\n" + "x" * 200_000 + ",1\n")
    assert len(rows_of(tmp_path / "a.csv")[0]["text"]) == 200_000
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ("", ["empty"]),
        ("text,label\n", ["header", "no rows", "text, label"]),
        ("text,text\na,b\n", ["line 1", "'text' 2 times"]),
        ("text,\na,b\n", ["line 1", "column 2", "no name"]),
        ('text,label\n"a\nb",1\nc,1,extra\n', ["row 2 (line 4)", "3 fields", "header has 2", "c, 1, extra", "quotes"]),
        ("text,label\na,1\nb\n", ["row 2 (line 3)", "1 fields"]),
        ('text,label\na,1\n"b,1\nc,0\n', ["line 3", "never closed", '"b,1']),
        ('text,label\na,1\n"b" c,1\n', ["line 3", "twice", '"b" c']),
    ],
)
def test_a_malformed_csv_is_pointed_at(content: str, facts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    message = said(path)
    assert [fact for fact in [str(path), *facts] if fact not in message] == [], message


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ('{"text": "a"}\n{"text": \n', ["line 2", "malformed JSON", "Expecting value", '{"text":']),
        ('{"text": "a"}\n\n["b"]\n', ["line 3", "must be an object", "a list", '["b"]']),
        ('{"text": "a"}\n{"text": 7}\n', ["row 2", "'text'", "a number (", "7", "text in row 1"]),
        ("\n", ["no rows"]),
    ],
)
def test_a_malformed_jsonl_is_pointed_at(content: str, facts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    message = said(path)
    assert [fact for fact in [str(path), *facts] if fact not in message] == [], message


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ('[{"text": "a"},\n{"text" "b"}]', ["line 2, column 9", "malformed JSON", '{"text" "b"}']),
        ('["a"]', ["row 1", "must be an object"]),
        ('{"data": 3}', ["a list of objects", "a number"]),
        (" ", ["empty"]),
    ],
)
def test_a_malformed_json_is_pointed_at(content: str, facts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    message = said(path)
    assert [fact for fact in [str(path), *facts] if fact not in message] == [], message


def test_bytes_that_are_not_utf8_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("text,label\nfine,1\ncafé,1\n".encode("cp1252"))
    message = said(path)
    assert "line 3: byte 4" in message and "0xe9" in message and "café" in message and "iconv" in message
    path.write_bytes("text,label\nfine,1\n".encode("utf-16"))
    assert "UTF-16" in said(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text(CSV)
    assert "Did you mean 'reviews.csv'?" in said(tmp_path / "review.csv")
    assert "no folder" in said(tmp_path / "nowhere" / "a.csv")
    assert "reviews.csv" in said(tmp_path)
    (tmp_path / "a.xlsx").write_text("x")
    assert ".csv" in said(tmp_path / "a.xlsx")
    (tmp_path / "a.parquet").write_text("no parquet")
    assert "cannot be read as PARQUET" in said(tmp_path / "a.parquet")
    (tmp_path / "a.csv.gz").write_text("no gzip")
    assert "gzip" in said(tmp_path / "a.csv.gz")


def test_a_name_that_the_hub_cannot_give(tmp_path: Path) -> None:
    message = said("nobody-has-this-data")
    assert "'nobody-has-this-data'" in message and "hub" in message and "--train_file" in message


def test_the_place_of_a_row_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(CSV)
    assert Table(read_table(path), str(path)).place(2) == f"{path}, row 3 (line 5)"
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ROWS))
    assert Table(read_table(path), str(path)).place(2) == f"{path}, row 3"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"a": "x"}', '{"a": "\\ud83d"}'], r"row 2: column 'a' holds '\\ud83d'"),
        (['{"a": 1}', '{"a": 1000000000000000000000000000000}', '{"a": 2}'], r"row 2: column 'a' holds 10000"),
        (['{"a": ["x"]}', '{"a": ["x", 1]}', '{"a": ["y"]}'], r"row 2: column 'a' holds \['x', 1\]"),
        (['{"a": "x"}', "[" * 100_000], r"line 2: nested too deeply"),
    ],
)
def test_a_value_that_no_column_holds_is_named(lines: list[str], said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=said):
        read_table(path)


def test_a_null_character_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\nfine,x\nbro\0ken,y\n")
    assert "row 2 (line 3): a null character" in said(path) or "line contains NUL" in said(path)


def test_columns_by_row_number_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"text": {"0": "a", "1": "b"}, "label": {"0": "x", "1": "y"}}))
    assert "holds columns (text, label), not rows" in said(path) and 'orient="records"' in said(path)
