"""Several files by a pattern, and files of a storage that is not here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import fsspec
import pytest

from burnish.cli.fingerprints import fingerprint, fingerprints
from burnish.cli.rows import read_rows
from burnish.core.errors import DataError
from burnish.tasks.files import read_table
from burnish.tasks.shards import shards

ROWS = [{"text": f"row {number}", "label": "ab"[number % 2]} for number in range(5)]


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A file system that lives in this process."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield memory
    memory.store.clear()


def lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_lines_of_json_in_a_storage(storage: Any) -> None:
    storage.pipe({"/data/rows-0.jsonl": lines(ROWS[:2]), "/data/rows-1.jsonl": lines(ROWS[2:])})
    assert read_table("memory://data/rows-0.jsonl").to_list() == ROWS[:2]
    assert read_table("memory://data/rows-*.jsonl").to_list() == read_rows("memory://data/rows-*.jsonl") == ROWS


def test_parquet_in_a_storage(storage: Any, tmp_path: Path) -> None:
    for number, part in enumerate((ROWS[:3], ROWS[3:])):
        datasets.Dataset.from_list(part).to_parquet(str(tmp_path / f"{number}.parquet"))
        storage.put(str(tmp_path / f"{number}.parquet"), f"/data/{number}.parquet")
    assert read_table("memory://data/*.parquet").to_list() == ROWS


def test_a_file_is_copied_once_and_again_when_it_has_changed(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.pipe("/rows.jsonl", lines(ROWS))
    copied: list[str] = []
    get_file = type(storage).get_file

    def noted(self: Any, path: str, *given: Any, **named: Any) -> Any:
        copied.append(path)
        return get_file(self, path, *given, **named)

    monkeypatch.setattr(type(storage), "get_file", noted)
    first = shards("memory://rows.jsonl")
    assert shards("memory://rows.jsonl") == first and len(copied) == 1
    storage.pipe("/rows.jsonl", lines(ROWS[:1]))
    assert read_table("memory://rows.jsonl").to_list() == ROWS[:1] and len(copied) == 2


@pytest.mark.usefixtures("storage")
def test_a_pattern_of_files_here(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("text,label\nz,y\n")
    (tmp_path / "a.csv").write_text("text,label\nu,x\nv,y\n")
    for name in (tmp_path / "*.csv", f"file://{tmp_path}/*.csv"):
        assert [row["text"] for row in read_table(name).to_list()] == ["u", "v", "z"]
    found = fingerprint(f"{tmp_path}/*.csv")
    assert found["path"].endswith("/*.csv") and found["bytes"] == sum(p.stat().st_size for p in tmp_path.glob("*.csv"))
    assert fingerprints({"train_file": f"{tmp_path}/*.csv"})["train_file"] == found


def test_a_name_with_a_bracket_is_a_file_if_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "rows[1].csv").write_text("text,label\nz,y\n")
    assert len(read_table(tmp_path / "rows[1].csv")) == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("memory://nothing.jsonl", "there is no such file"),
        ("memory://nothing-*.jsonl", "there is no file of that name"),
        ("nowhere-*.csv", "there is no file of that name"),
        ("gopher://there/rows.csv", "gopher"),
    ],
)
def test_what_is_not_there(name: str, words: str, storage: Any) -> None:
    with pytest.raises(DataError, match=words):
        read_table(name)


def test_files_that_make_no_table_together(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\nu,x\n")
    (tmp_path / "b.csv").write_text("text,tag\nz,y\n")
    with pytest.raises(DataError, match=r"b\.csv has the columns text, tag, and .*a\.csv has text, label"):
        read_table(tmp_path / "*.csv")
