"""An encoder-decoder in the shape of T5, from random weights: a sentence of a review to the one that follows it.

python benchmarks/seq2seq.py --library transformers --steps 6
"""

from itertools import pairwise

import datasets
import measure
import reviews
import torch
import training
import transformers

options = measure.parse(__doc__, steps=6)
tokenizer = reviews.tokenizer()
torch.manual_seed(0)
config = transformers.T5Config(
    vocab_size=len(tokenizer),
    d_model=256,
    d_kv=64,
    d_ff=1024,
    num_layers=4,
    num_heads=4,
    dropout_rate=options.dropout,
    pad_token_id=tokenizer.pad_token_id,
    eos_token_id=tokenizer.sep_token_id,
    decoder_start_token_id=tokenizer.pad_token_id,
)
model = transformers.T5ForConditionalGeneration(config)
encoded = tokenizer(reviews.sentences(), truncation=True, max_length=128)["input_ids"]
rows = datasets.Dataset.from_list(
    [{"input_ids": one, "attention_mask": [1] * len(one), "labels": two} for one, two in pairwise(encoded)]
)
collator = transformers.DataCollatorForSeq2Seq(tokenizer, model=model)
training.train_with(options, model, rows.shuffle(seed=0), batch=16, collator=collator)
