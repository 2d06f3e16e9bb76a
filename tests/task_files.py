"""Tiny data files and model folders that the tests of the tasks share."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import tiny

GOOD = ["w5 w6 w7", "w8 w9", "w10 w11 w12 w13", "w14 w15"]


def write_csv(path: Path, rows: list[dict[str, Any]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def reviews(count: int = 12) -> list[dict[str, Any]]:
    return [{"text": f"{GOOD[i % 4]} w{20 + i}", "label": ("bad", "good")[i % 2]} for i in range(count)]


def model_folder(path: Path, model: Any = None, **tokenizer_changes: Any) -> str:
    """A folder with a tiny model (a BERT body with a masked head where none is given) and its tokenizer."""
    (model if model is not None else tiny.bert("MaskedLM")).save_pretrained(path)
    tiny.tokenizer(**tokenizer_changes).save_pretrained(path)
    return str(path)
