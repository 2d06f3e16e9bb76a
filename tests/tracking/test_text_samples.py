"""Generated texts as lines to read."""

from __future__ import annotations

from burnish.tracking.text_samples import LONGEST, how_many, shown, text_lines


def test_how_many() -> None:
    assert how_many(12, 12) == how_many(12, None) == "generating texts for 12 rows"
    assert how_many(500, 12_345) == "generating texts for 500 rows of 12,345 (generation_max_rows)"


def test_lines_of_texts() -> None:
    texts = [
        {"row": 3, "prompt": "What\nis it?", "reference": "a cat", "generated": "a dog"},
        {"row": 12345, "prompt": "Why?", "reference": None, "generated": ""},
    ]
    assert list(text_lines(texts, "out/texts/eval-5.jsonl")) == [
        "  row 3     prompt     What is it?",
        "            reference  a cat",
        "            generated  a dog",
        "  row 12345  prompt     Why?",
        "            generated  ",
        "texts: out/texts/eval-5.jsonl",
    ]


def test_long_texts_are_cut() -> None:
    assert shown("word " * 8) == "word word word word word word word word"
    long = shown("abc" * 100)
    assert len(long) == LONGEST and long.startswith("abca") and long.endswith("…")
    assert len(shown("abc" * 100, end=True)) == LONGEST and shown("abc" * 100, end=True).startswith("…")
