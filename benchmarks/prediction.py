"""Predictions of a tiny BERT for 10,000 rows: little to compute, many rows to carry.

python benchmarks/prediction.py --library transformers --steps 1250
"""

import measure
import reviews
import torch
import training
import transformers

BATCH = 8

options = measure.parse(__doc__, steps=1250)
tokenizer = reviews.tokenizer()
rows = reviews.dataset(BATCH * options.steps, truncation=True)
torch.manual_seed(0)
model = transformers.BertForSequenceClassification(reviews.tiny_config(options.dropout, vocab_size=len(tokenizer)))
training.predict_with(options, model, rows, BATCH, transformers.DataCollatorWithPadding(tokenizer))
