"""A small Llama from random weights, on plain text cut into blocks of 256 tokens: no padding, a target everywhere.

python benchmarks/pretraining.py --library transformers --steps 6
"""

import measure
import reviews
import torch
import training
import transformers

BLOCK, BATCH = 256, 8

options = measure.parse(__doc__, steps=6, logging_steps=1)
tokenizer = reviews.tokenizer()
tokens = [token for row in tokenizer(reviews.sentences(), add_special_tokens=False)["input_ids"] for token in row]
blocks = [tokens[start : start + BLOCK] for start in range(0, len(tokens) - BLOCK, BLOCK)]
rows = [{"input_ids": block, "attention_mask": [1] * BLOCK, "labels": block} for block in blocks]
torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=len(tokenizer),
    hidden_size=256,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=768,
    max_position_embeddings=BLOCK,
    tie_word_embeddings=True,
)
training.train_with(options, transformers.LlamaForCausalLM(config), rows, BATCH, of_limit=True)
