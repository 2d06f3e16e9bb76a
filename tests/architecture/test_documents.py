"""What the documents point at exists: files they link to, tests and scripts in their commands, targets of make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import source_tree

DOCUMENTS = [*sorted(source_tree.ROOT.glob("*.md")), *sorted((source_tree.ROOT / "docs").glob("*.md"))]


@pytest.fixture(params=DOCUMENTS, ids=lambda path: path.name)
def document(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_links(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", document.read_text(encoding="utf-8"))
    broken = [to for to in targets if "://" not in to and not (document.parent / to).exists()]
    assert broken == []


def test_commands(document: Path) -> None:
    """A path of ours inside `code`, and the words after make."""
    text = document.read_text(encoding="utf-8")
    code = "\n".join(block or inline for block, inline in re.findall(r"```[^\n]*\n(.*?)```|`([^`\n]+)`", text, re.S))
    paths = set(re.findall(r"(?<![\w./<])(?:tests|benchmarks|docs|examples|src)/[\w./-]+", code))
    missing = {path for path in paths if not (source_tree.ROOT / path).exists() and not path.endswith("results/")}
    targets = set(re.findall(r"^([a-z]+):", (source_tree.ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    unknown = set(re.findall(r"\bmake (?:[A-Z]+=\S* )*([a-z]+)", code)) - targets
    assert (missing, unknown) == (set(), set())
