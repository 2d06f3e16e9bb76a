"""The walkthrough with dynamic padding: each batch is padded to its longest row.

python benchmarks/dynamic.py --library transformers --steps 12
"""

import measure
import reviews
import training
from transformers import DataCollatorWithPadding

options = measure.parse(__doc__, steps=12)
rows = reviews.dataset(truncation=True)
collator = DataCollatorWithPadding(reviews.tokenizer())
training.train_with(options, reviews.model(options.dropout, num_labels=2), rows, batch=16, collator=collator)
