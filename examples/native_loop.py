"""A training loop written by hand, with the parts of burnish: its steps, its loss, its metrics, its checkpoints.

    python examples/native_loop.py --output_dir out                     in one process, plain PyTorch
    accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no \\
        examples/native_loop.py --output_dir out --accelerate           in two, through Accelerator.prepare

Both take the same steps: equal examples, losses and weights. Started again, it goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import random
from typing import Any

import torch
import transformers

import burnish

WORDS, PASSES, STEP_SIZE = 100, 3, 16


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Rows of 4 to 40 tokens, every third of which is 7 where the label is 1."""
    draw = random.Random(seed)
    found = [[draw.randrange(10, WORDS) for _ in range(draw.randint(4, 40))] for _ in range(count)]
    for ids in found[::2]:
        ids[::3] = [7] * len(ids[::3])
    return [{"input_ids": ids, "attention_mask": [1] * len(ids), "labels": int(7 in ids)} for ids in found]


def collate(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Padded to the longest of a micro-batch."""
    longest = max(len(example["input_ids"]) for example in examples)
    padded = {
        name: torch.tensor([example[name] + [0] * (longest - len(example[name])) for example in examples])
        for name in ("input_ids", "attention_mask")
    }
    return {**padded, "labels": torch.tensor([example["labels"] for example in examples])}


def new_model() -> transformers.PreTrainedModel:
    burnish.set_seed(0)
    shape = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(**shape, **dropout, intermediate_size=64, max_position_embeddings=64)
    )


def train(output_dir: str, accelerator: Any = None) -> list[float]:
    """The losses of the steps that this start has taken."""
    process, count = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
    model = new_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = burnish.TrainingSteps(
        rows(256, seed=1), collate, STEP_SIZE, model, token_budget=256, process=process, num_processes=count
    )
    step_loss = burnish.StepLoss.of(model, steps)
    done = burnish.load_checkpoint(output_dir, model, optimizer)
    prepared = accelerator.prepare(model) if accelerator else model
    losses = []
    if done.passes and process == 0:
        print(f"{output_dir} has passes 1 to {done.passes} of {PASSES}", flush=True)
    for epoch in range(done.passes, PASSES):
        first = done.steps_in_pass if epoch == done.passes else 0
        for step in steps.of_pass(epoch, first):
            prepared.train()
            losses.append(take(step, step_loss, prepared, optimizer, accelerator))
        if process == 0:
            at = {"passes": epoch + 1, "steps_in_pass": 0}
            burnish.save_checkpoint(output_dir, (epoch + 1) * len(steps), model, optimizer, **at)
            print(f"pass {epoch + 1}  loss {losses[-1]:.4f}  {evaluate(model)}", flush=True)
        if accelerator:
            accelerator.wait_for_everyone()
    return losses


def take(step: Any, step_loss: Any, model: Any, optimizer: Any, accelerator: Any) -> float:
    """One step: targets are counted over all processes before anything is divided by their number."""
    targets = over_processes(step_loss.targets(step), accelerator)
    batches = step.micro_batches or (step.stand_in,)  # a process without an example computes one in vain, times 0
    loss = 0.0
    for number, batch in enumerate(batches):
        is_last = number == len(batches) - 1
        waits = accelerator is not None and not is_last
        with accelerator.no_sync(model) if waits else contextlib.nullcontext():
            part = step_loss(model, batch, targets if step.micro_batches else float("inf"))
            # DistributedDataParallel takes the mean over processes; the sum is what is wanted
            scaled = part * (accelerator.num_processes if accelerator else 1)
            accelerator.backward(scaled) if accelerator else scaled.backward()
        loss += float(part.detach())
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return over_processes(loss, accelerator)


def over_processes(number: float, accelerator: Any) -> float:
    """The sum of a number over all processes."""
    if accelerator is None:
        return number
    found = torch.tensor(number, dtype=torch.float64, device=accelerator.device)
    return float(accelerator.reduce(found, reduction="sum"))


def evaluate(model: Any) -> dict[str, float]:
    """Metrics by name, updated batch by batch."""
    metrics = burnish.Metrics(["accuracy", "f1"])
    model.eval()
    examples = rows(64, seed=2)
    with torch.no_grad():
        for start in range(0, len(examples), 16):
            batch = collate(examples[start : start + 16])
            metrics.update(model(**batch).logits, batch["labels"])
    return metrics.compute()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--accelerate", action="store_true", help="through accelerate, in any number of processes")
    options = parser.parse_args()
    accelerator = None
    if options.accelerate:
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=not torch.cuda.is_available())
    train(options.output_dir, accelerator)


if __name__ == "__main__":
    main()
