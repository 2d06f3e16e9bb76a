"""No file of the project holds a path of somebody's machine, or the host of a package registry."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import source_tree

# Written in pieces, so that this file does not hold them itself.
PRIVATE = [
    r"/(root|work)" + r"/",
    r"/home/" + r"\w+",
    r"/opt/(wheels|pypi)",
    r"pypi" + r"\.org|files\.python" + r"hosted",
    r"(?i)generated (by|with) an? " + r"(ai|assistant|model)\b|co-authored" + r"-by",
]


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=source_tree.ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [source_tree.ROOT / name for name in listed.stdout.split("\0") if name]


def test_nothing_of_a_machine() -> None:
    files = [file for file in tracked_files() if file.is_file()]
    assert len(files) > 20
    found = []
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # a picture or other binary
        for number, line in enumerate(lines, 1):
            found += [f"{file.name}:{number} {p}" for p in PRIVATE if re.search(p, line)]
    assert found == []
