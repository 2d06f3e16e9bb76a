"""Small things: no file over 500 lines, no function over 60, and no room for odds and ends."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import source_tree

MOST_LINES_OF_A_FILE = 500
MOST_LINES_OF_A_FUNCTION = 60
WITHOUT_A_TRADE = {"utils", "util", "helpers", "misc", "common"}

FILES = [
    file
    for folder in ("src", "tests", "benchmarks", "examples")
    for file in sorted((source_tree.ROOT / folder).rglob("*.py"))
]


def name(file: Path) -> str:
    return str(file.relative_to(source_tree.ROOT))


def test_there_are_files() -> None:
    assert len(FILES) > 20


@pytest.mark.parametrize("file", FILES, ids=name)
def test_size(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES_OF_A_FILE
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines = {f"{f.name} (line {f.lineno})": (f.end_lineno or f.lineno) - f.lineno + 1 for f in functions}
    assert {who: count for who, count in lines.items() if count > MOST_LINES_OF_A_FUNCTION} == {}


def test_every_module_has_a_trade() -> None:
    paths = [file.relative_to(source_tree.PACKAGE) for file in source_tree.files()]
    assert [str(path) for path in paths if WITHOUT_A_TRADE & {*path.parent.parts, path.stem}] == []
