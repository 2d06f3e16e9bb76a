"""Fine-tuning SmolLM2-135M on conversations of 30 to 600 tokens, with the loss on what the assistant says.

python benchmarks/chat_sft.py --library trl --steps 2
"""

import chats
import measure
import training
from transformers import DataCollatorForSeq2Seq

BATCH = 8

options = measure.parse(__doc__, steps=2, logging_steps=1)
tokenizer = chats.tokenizer()
rows = chats.conversations(tokenizer, BATCH * options.steps)
training.train_with(options, chats.model(), rows, BATCH, DataCollatorForSeq2Seq(tokenizer), of_limit=True)
