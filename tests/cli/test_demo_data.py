"""The bundled reviews."""

from __future__ import annotations

import csv
import re
from collections import Counter

from burnish.cli.demo import DATA, TRAIN_FILE, VALIDATION_FILE


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def normalised(text):
    return " ".join(re.findall(r"\w+", text.lower()))


def test_the_labels_are_balanced_and_no_text_is_empty():
    for path, count in ((TRAIN_FILE, 2000), (VALIDATION_FILE, 800)):
        found = rows(path)
        assert Counter(row["label"] for row in found) == {"positive": count // 2, "negative": count // 2}
        assert all(row["text"].strip() and "&amp;" not in row["text"] for row in found)


def test_no_text_is_there_twice():
    texts = [normalised(row["text"]) for path in (TRAIN_FILE, VALIDATION_FILE) for row in rows(path)]
    assert len(texts) == len(set(texts))


def test_the_source_is_named_and_its_licence_is_there():
    text = (DATA / "SOURCE.md").read_text(encoding="utf-8")
    assert "MIT License" in text and "Hutto" in text and "2014" in text
