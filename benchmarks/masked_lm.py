"""Masked language modelling: MiniLM, 15 % of the tokens masked by the library's own collator.

Libraries draw different masks. To compare losses (--check) the masks are drawn once, ahead, and rows are only padded.

python benchmarks/masked_lm.py --library transformers --steps 6
"""

import importlib
from typing import Any

import measure
import reviews
import torch
import training
import transformers

options = measure.parse(__doc__, steps=6)
tokenizer = reviews.tokenizer()
rows = reviews.dataset(truncation=True).select_columns(["input_ids", "attention_mask"])
library: Any = importlib.import_module(options.library)
collator = library.DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm_probability=0.15)


def masked(row: dict[str, Any]) -> dict[str, Any]:
    batch = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)([row])
    return {name: batch[name][0].tolist() for name in ("input_ids", "attention_mask", "labels")}


if options.check:
    torch.manual_seed(0)
    rows = rows.select(range(16 * options.steps)).map(masked, load_from_cache_file=False)
    collator = transformers.DataCollatorForTokenClassification(tokenizer)
training.train_with(options, reviews.model(options.dropout, "MaskedLM"), rows, batch=16, collator=collator)
