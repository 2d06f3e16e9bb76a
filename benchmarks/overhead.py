"""What a trainer costs beside the model: a tiny BERT, rows of one length, so that there is no padding to save.

python benchmarks/overhead.py --library bare --steps 300
"""

import measure
import torch
import transformers

LENGTH = 32

options = measure.parse(__doc__, steps=300)
config = transformers.BertConfig(
    vocab_size=1000,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=256,
    hidden_dropout_prob=options.dropout,
    attention_probs_dropout_prob=options.dropout,
)
torch.manual_seed(0)
model = transformers.BertForSequenceClassification(config)
tokens = torch.randint(5, 1000, (options.steps * 8, LENGTH)).tolist()
rows = [{"input_ids": row, "attention_mask": [1] * LENGTH, "labels": number % 2} for number, row in enumerate(tokens)]
measure.train_with(options, model, rows, batch=8)
