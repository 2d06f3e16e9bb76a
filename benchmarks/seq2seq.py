"""An encoder-decoder in the shape of T5, from random weights: a sentence of a review to the one that follows it.

python benchmarks/seq2seq.py --library transformers --steps 6
"""

import measure
import training
from seq2seq_model import collator, model, pairs

options = measure.parse(__doc__, steps=6)
trained = model(options.dropout)
training.train_with(options, trained, pairs(), batch=16, collator=collator(trained))
