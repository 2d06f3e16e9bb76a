"""The known walkthrough: MiniLM on reviews, every row padded to 512, batches of 16.

python benchmarks/walkthrough.py --library transformers --steps 8
"""

import measure
import reviews

options = measure.parse(__doc__, steps=8)
rows = reviews.dataset(padding="max_length", truncation=True, max_length=512)
if options.library == "bare":
    rows = rows.rename_column("label", "labels").remove_columns("text").with_format("torch")
measure.train_with(options, reviews.model(options.dropout), rows, batch=16)
