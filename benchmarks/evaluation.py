"""Loss and accuracy of MiniLM on product reviews: batches of 8 in the order of the dataset.

python benchmarks/evaluation.py --library transformers --steps 125
"""

import measure
import reviews
import training
from transformers import DataCollatorWithPadding

BATCH = 8

options = measure.parse(__doc__, steps=125)
rows = reviews.dataset(BATCH * options.steps, truncation=True)
model = reviews.model(options.dropout, num_labels=2)
training.evaluate_with(options, model, rows, BATCH, DataCollatorWithPadding(reviews.tokenizer()))
