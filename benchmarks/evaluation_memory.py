"""Peak memory of evaluating a language model at 100 rows and at 10,000: loss, and accuracy of the likeliest token.

python benchmarks/evaluation_memory.py --library transformers --steps 1250
"""

from typing import Any

import measure
import torch
import training
import transformers

LENGTH, BATCH, VOCABULARY, FEW_STEPS = 32, 8, 1000, 13

options = measure.parse(__doc__, steps=1250)
torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128
)
model = transformers.LlamaForCausalLM(config)
tokens = torch.randint(0, VOCABULARY, (BATCH * options.steps, LENGTH)).tolist()
rows = [{"input_ids": row, "attention_mask": [1] * LENGTH, "labels": row} for row in tokens]


def likeliest(logits: Any, labels: Any) -> torch.Tensor:
    return logits.argmax(-1)


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions[:, :-1] == prediction.label_ids[:, 1:]).mean())}


run = training.trainer(options, BATCH, model=model, compute_metrics=accuracy, preprocess_logits_for_metrics=likeliest)
few = BATCH * min(FEW_STEPS, options.steps)
run.evaluate(rows[:few])  # what is made once is made
with measure.Meter() as at_few:
    run.evaluate(rows[:few])
with measure.Meter() as at_all:
    found = run.evaluate(rows)
measure.report(
    options,
    [found["eval_loss"], found["eval_accuracy"]],
    **at_all.figures(),
    cpu_seconds_per_step=at_all.cpu / options.steps,
    peak_mib_few_rows=at_few.peak_mib,
    growth_mib=at_all.peak_mib - at_few.peak_mib,
)
