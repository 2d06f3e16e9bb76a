"""The known walkthrough: MiniLM on reviews, every row padded to 512, batches of 16.

python benchmarks/walkthrough.py --library transformers --steps 3
"""

import measure
import reviews
import training

options = measure.parse(__doc__, steps=3)
rows = reviews.dataset(padding="max_length", truncation=True, max_length=512)
training.train_with(options, reviews.model(options.dropout, num_labels=2), rows, batch=16)
