"""Trains, evaluates and predicts with the library asked for, under one set of settings, and reports what it costs."""

from __future__ import annotations

import argparse
import importlib
import tempfile
from collections.abc import Callable
from typing import Any

import limit
import loops
import torch
from measure import Clock, Meter, report
from torch.nn import functional

MIB = 2**20
BYTES_OF_ADAM = 8
"""Two moments in float32 for each weight."""


def train_with(
    options: argparse.Namespace, model: Any, rows: Any, batch: int, collator: Any = None, of_limit: bool = False
) -> None:
    """Trains, and writes the report. Rows are taken in their order.

    Args:
        of_limit: also measure what share of the machine's limit useful work reaches, for a causal language model.
    """
    clock = Clock()
    prepare = {"bare": loops.bare, "lightning": loops.lightning}.get(options.library, with_trainer)
    train = prepare(options, model, rows, batch, collator, clock)
    read_weights(model)
    gemm_before = limit.gemm_gflops() if of_limit else 0.0
    with Meter() as meter:
        clock.tick()
        losses = train()
    optimizer_mib = BYTES_OF_ADAM * sum(p.numel() for p in model.parameters() if p.requires_grad) / MIB
    figures = {**meter.figures(), "cpu_seconds_per_step": clock.seconds_per_step()}
    # Before training the weights were there and the optimizer was not.
    figures["above_weights_and_optimizer_mib"] = meter.above_mib - optimizer_mib
    if of_limit:
        counted = [rows[number % len(rows)] for number in range(batch * options.steps)][-batch * clock.num_steps :]
        figures |= limit.share_of_limit(limit.useful_flops(model, counted), clock.seconds(), gemm_before)
    report(options, losses, **figures)


def read_weights(model: torch.nn.Module) -> None:
    """Weights of a file that is mapped into memory are not there before they are read, and would count as added."""
    for weight in model.parameters():
        weight.detach().sum()


def with_trainer(
    options: argparse.Namespace, model: Any, rows: Any, batch: int, collator: Any, clock: Clock
) -> Callable[[], list[float]]:
    """Everything up to `train()`, by the library's own names."""
    callback = importlib.import_module("burnish" if options.library == "burnish" else "transformers").TrainerCallback

    class Ticks(callback):  # type: ignore[misc, valid-type]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            clock.tick()

    given = {"model": model, "train_dataset": rows, "callbacks": [Ticks()]}
    if options.library == "trl":
        run = sft_trainer(settings(options, batch), collator.tokenizer, **given)
    else:
        run = trainer(options, batch, data_collator=collator, **given)

    def train() -> list[float]:
        run.train()
        return [float(entry["loss"]) for entry in run.state.log_history if "loss" in entry]

    return train


def settings(options: argparse.Namespace, batch: int) -> dict[str, Any]:
    """The defaults, rows in their order, and nothing written."""
    return {
        "output_dir": tempfile.mkdtemp(prefix="bench-"),
        "max_steps": options.steps,
        "per_device_train_batch_size": batch,
        "per_device_eval_batch_size": batch,
        "train_sampling_strategy": "sequential",
        "logging_steps": options.logging_steps,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }


def trainer(options: argparse.Namespace, batch: int, **given: Any) -> Any:
    """The `Trainer` of burnish or transformers."""
    library = importlib.import_module(options.library)
    return library.Trainer(args=library.TrainingArguments(**settings(options, batch)), **given)


def sft_trainer(shared: dict[str, Any], tokenizer: Any, **given: Any) -> Any:
    """TRL's, with its own collator, and the learning rate, precision and checkpointing that the others have."""
    from trl import SFTConfig, SFTTrainer

    args = SFTConfig(**shared, learning_rate=5e-5, bf16=False, gradient_checkpointing=False, max_length=None)
    return SFTTrainer(args=args, processing_class=tokenizer, **given)


def evaluate_with(options: argparse.Namespace, model: Any, rows: Any, batch: int, collator: Any) -> None:
    """Loss and accuracy of all rows, and the report."""
    read_weights(model)
    if options.library == "bare":
        with Meter() as meter:
            logits, labels = loops.predictions(model, rows, batch, collator)
            loss = functional.cross_entropy(logits, labels).item()
    else:
        run = trainer(options, batch, model=model, data_collator=collator, compute_metrics=accuracy)
        with Meter() as meter:
            loss = run.evaluate(rows)["eval_loss"]
    report(options, [loss], **meter.figures(), cpu_seconds_per_step=meter.cpu / options.steps)


def predict_with(options: argparse.Namespace, model: Any, rows: Any, batch: int, collator: Any) -> None:
    """Predictions of all rows, and the report, with their loss: it depends on their order."""
    read_weights(model)
    if options.library == "bare":
        with Meter() as meter:
            logits, labels = loops.predictions(model, rows, batch, collator)
    else:
        run = trainer(options, batch, model=model, data_collator=collator)
        with Meter() as meter:
            found = run.predict(rows)
        logits, labels = torch.as_tensor(found.predictions), torch.as_tensor(found.label_ids)
    loss = functional.cross_entropy(logits, labels).item()
    report(options, [loss], **meter.figures(), cpu_seconds_per_step=meter.cpu / options.steps)


def accuracy(prediction: Any) -> dict[str, float]:
    """Share of rows whose largest logit is that of the label."""
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}
