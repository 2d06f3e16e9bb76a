"""Rows written to a file, and read again."""

from __future__ import annotations

import pytest

from burnish.cli.rows import check_writable, read_rows, write_rows
from burnish.core.errors import UserError

ROWS = [{"text": 'He said, "no".', "n": "007"}, {"text": "two\nlines", "n": "8"}]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json", "parquet"])
def test_what_is_written_is_read_again(tmp_path, ending):
    path = tmp_path / "new" / f"rows.{ending}"
    write_rows(path, ROWS)
    assert read_rows(path) == ROWS


def test_probabilities_and_lists_are_readable_in_a_table(tmp_path):
    write_rows(tmp_path / "a.csv", [{"p": 0.1234567, "labels": ["a", "b"]}])
    assert (tmp_path / "a.csv").read_text().splitlines()[1] == '0.123457,"[""a"", ""b""]"'


def test_an_unknown_ending_is_refused_before_anything_is_computed(tmp_path):
    with pytest.raises(UserError, match=r"must end in one of \.csv"):
        check_writable(tmp_path / "a.xlsx")
