"""Greedy answers of SmolLM2-135M to prompts of 20 to 400 tokens: `predict` with `predict_with_generate`.

python benchmarks/generation.py --library transformers --steps 25
"""

import random
from itertools import cycle

import chats
import measure
import reviews
from generating import generate_with
from transformers import DataCollatorWithPadding

BATCH = 8
NEW_TOKENS = 48
SENTENCES = (1, 1, 2, 3, 4, 6, 8, 12)
"""Of a prompt, drawn from these."""

options = measure.parse(__doc__, steps=25)
tokenizer = chats.tokenizer()
tokenizer.padding_side = "left"  # which transformers' trainer needs; burnish pads as it pleases
sentences = cycle(reviews.sentences())
texts = [
    " ".join(next(sentences) for _ in range(random.Random(number).choice(SENTENCES)))
    for number in range(BATCH * options.steps)
]
prompts = [f"<|im_start|>user\nSay it shorter: {text}<|im_end|>\n<|im_start|>assistant\n" for text in texts]
rows = [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in tokenizer(prompts)["input_ids"]]
generate_with(options, chats.model(), rows, BATCH, DataCollatorWithPadding(tokenizer), tokenizer, new_tokens=NEW_TOKENS)
