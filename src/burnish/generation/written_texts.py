"""What was written, for people: a file with every text, and a few texts to look at."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

FOLDER = "texts"


def text_file(output_dir: Path, prefix: str, step: int) -> Path:
    """Where the texts of an evaluation go, such as `texts/eval-500.jsonl`."""
    return output_dir / FOLDER / f"{prefix}-{step}.jsonl"


def write_texts(path: Path, texts: Iterable[dict[str, Any]]) -> None:
    """Writes one JSON object a line: "row", "prompt", "reference" (null without labels) and "generated". The file is
    replaced whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.tmp")
    with fresh.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
    os.replace(fresh, path)


def in_words(
    rows: Sequence[int], prompts: Sequence[str], references: Sequence[str] | None, generated: Sequence[str]
) -> list[dict[str, Any]]:
    """What was written for each row, beside what the row has."""
    right: Sequence[str | None] = references if references is not None else [None] * len(rows)
    return [
        {"row": row, "prompt": prompt, "reference": reference, "generated": text}
        for row, prompt, reference, text in zip(rows, prompts, right, generated, strict=True)
    ]
