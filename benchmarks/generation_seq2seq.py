"""Greedy texts of an encoder-decoder in the shape of T5, from random weights, 48 tokens for each sentence of a review;
and the loss of the sentence that follows it.

python benchmarks/generation_seq2seq.py --library transformers --steps 25
"""

import measure
import torch
from generating import generate_with
from seq2seq_model import collator, model, pairs, tokenizer

BATCH = 8
NEW_TOKENS = 48

options = measure.parse(__doc__, steps=25)
writer = model(dropout=0.0)
writer.lm_head.weight = torch.nn.Parameter(torch.randn_like(writer.lm_head.weight))  # or it would write one token only
writer.generation_config.eos_token_id = None  # every text is as long as it may be
rows = pairs(BATCH * options.steps)
generate_with(options, writer, rows, BATCH, collator(writer), tokenizer(), new_tokens=NEW_TOKENS)
