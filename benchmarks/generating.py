"""Writes texts with the library asked for, and reports what it costs."""

from __future__ import annotations

import argparse
import importlib
import zlib
from typing import Any

from measure import Meter, report
from training import read_weights, settings


def generate_with(
    options: argparse.Namespace, model: Any, rows: Any, batch: int, collator: Any, tokenizer: Any, new_tokens: int
) -> None:
    """Greedy texts for all rows by `Seq2SeqTrainer.predict`, and the report, with a number for each text: equal texts
    have equal numbers."""
    read_weights(model)
    library = importlib.import_module(options.library)
    args = library.Seq2SeqTrainingArguments(**settings(options, batch), predict_with_generate=True)
    run = library.Seq2SeqTrainer(model=model, args=args, data_collator=collator, processing_class=tokenizer)
    with Meter() as meter:
        found = run.predict(rows, max_new_tokens=new_tokens, do_sample=False).predictions
    prompts = [[] if model.config.is_encoder_decoder else list(row["input_ids"]) for row in rows]
    texts = [written(ids.tolist(), prompt, tokenizer, new_tokens) for ids, prompt in zip(found, prompts, strict=True)]
    numbers = [zlib.crc32(" ".join(map(str, text)).encode()) / 2**32 for text in texts]
    report(options, numbers, **meter.figures(), cpu_seconds_per_step=meter.cpu / options.steps)


def written(ids: list[int], prompt: list[int], tokenizer: Any, new_tokens: int) -> list[int]:
    """New tokens alone, up to the end of the text: transformers' trainer gives prompt and padding too."""
    starts = range(len(ids) - len(prompt) + 1) if prompt else ()
    behind = next((start + len(prompt) for start in starts if ids[start : start + len(prompt)] == prompt), 0)
    new = [token for token in ids[behind:] if token >= 0]
    if not prompt:  # of one length for all, behind the first token of the decoder
        return new[-new_tokens:]
    return new[: new.index(tokenizer.eos_token_id)] if tokenizer.eos_token_id in new else new
