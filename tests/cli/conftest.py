"""A tiny pretrained model in a folder, and small files of rows."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

WORDS = [f"w{i}" for i in range(5, 60)]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    """A BERT of one layer without a head, and a tokenizer of 60 words."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("model")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "good", "bad"]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    transformers.PreTrainedTokenizerFast(tokenizer_object=core, **special).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def write_reviews(path: Path, count: int, seed: int) -> Path:
    """Texts that hold "good" or "bad", and the label that goes with it."""
    draw = random.Random(seed)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["number", "text", "label"])
        for i in range(count):
            label = ("negative", "positive")[i % 2]
            words = [*draw.choices(WORDS, k=draw.randint(2, 9)), ("bad", "good")[i % 2]]
            draw.shuffle(words)
            table.writerow([i, " ".join(words), label])
    return path


@pytest.fixture
def reviews(tmp_path) -> dict[str, Path]:
    """Files with 32 rows to train on and 12 to evaluate on."""
    return {
        "train": write_reviews(tmp_path / "train.csv", 32, seed=0),
        "validation": write_reviews(tmp_path / "validation.csv", 12, seed=1),
    }


@pytest.fixture
def train_words(tiny_model, reviews, tmp_path, monkeypatch) -> list[str]:
    """The words of `burnish train` for a run of a second, with the caches of other libraries in `tmp_path`."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return [
        "train", "--model_name_or_path", str(tiny_model), "--train_file", str(reviews["train"]),
        "--validation_file", str(reviews["validation"]), "--output_dir", str(tmp_path / "out"), "--use_cpu",
        "--num_train_epochs", "2", "--per_device_train_batch_size", "8", "--learning_rate", "1e-2",
    ]  # fmt: skip
