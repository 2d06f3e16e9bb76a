"""What a trainer costs beside the model: a tiny BERT, rows of one length, so that there is no padding to save.

python benchmarks/overhead.py --library bare --steps 300
"""

import measure
import reviews
import torch
import training
import transformers

LENGTH = 32

options = measure.parse(__doc__, steps=300)
torch.manual_seed(0)
model = transformers.BertForSequenceClassification(reviews.tiny_config(options.dropout, vocab_size=1000))
tokens = torch.randint(5, 1000, (options.steps * 8, LENGTH)).tolist()
rows = [{"input_ids": row, "attention_mask": [1] * LENGTH, "labels": number % 2} for number, row in enumerate(tokens)]
training.train_with(options, model, rows, batch=8)
