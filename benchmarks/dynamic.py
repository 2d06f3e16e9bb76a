"""The walkthrough with dynamic padding: each batch is padded to its longest row.

python benchmarks/dynamic.py --library transformers --steps 30
"""

import measure
import reviews
from transformers import DataCollatorWithPadding

options = measure.parse(__doc__, steps=30)
rows = reviews.dataset(truncation=True)
if options.library == "bare":
    rows = rows.rename_column("label", "labels").remove_columns("text")
collator = DataCollatorWithPadding(reviews.tokenizer())
measure.train_with(options, reviews.model(options.dropout), rows, batch=16, collator=collator)
