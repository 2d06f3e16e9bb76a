"""The same work written by hand, and with Lightning: AdamW, linear schedule, clipping, a loss printed now and then."""

from __future__ import annotations

import argparse
import inspect
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from measure import Clock


def loader(model: Any, rows: Any, batch: int, collator: Any) -> Any:
    """Batches in the order of the rows, of what the model takes."""
    from transformers import default_data_collator

    if hasattr(rows, "column_names"):
        taken = inspect.signature(model.forward).parameters
        rows = rows.rename_column("label", "labels") if "label" in rows.column_names else rows
        rows = rows.select_columns([name for name in rows.column_names if name in taken])
    return torch.utils.data.DataLoader(rows, batch_size=batch, collate_fn=collator or default_data_collator)


def optimizer_and_schedule(model: Any, steps: int) -> tuple[Any, Any]:
    """The defaults of the trainers that it is compared with."""
    from transformers import get_linear_schedule_with_warmup

    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0, fused=True)
    return optimizer, get_linear_schedule_with_warmup(optimizer, 0, steps)


class LossLog:
    """Mean losses between logs. Reads the device only when a log is due."""

    def __init__(self, every: int) -> None:
        self.every, self.step, self.since = every, 0, torch.zeros(())
        self.losses: list[float] = []

    def add(self, loss: torch.Tensor) -> None:
        self.since += loss.detach()
        self.step += 1
        if self.step % self.every == 0:
            self.losses.append(self.since.item() / self.every)
            self.since.zero_()
            print({"loss": self.losses[-1], "step": self.step})


def bare(
    options: argparse.Namespace, model: Any, rows: Any, batch: int, collator: Any, clock: Clock
) -> Callable[[], list[float]]:
    batches = loader(model, rows, batch, collator)

    def train() -> list[float]:
        optimizer, schedule = optimizer_and_schedule(model, options.steps)
        log = LossLog(options.logging_steps)
        model.train()
        while log.step < options.steps:
            for inputs in batches:
                loss = model(**inputs).loss
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                log.add(loss)
                clock.tick()
                if log.step == options.steps:
                    break
        return log.losses

    return train


def lightning(
    options: argparse.Namespace, model: Any, rows: Any, batch: int, collator: Any, clock: Clock
) -> Callable[[], list[float]]:
    import lightning as library

    log = LossLog(options.logging_steps)

    class Module(library.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, inputs: Any, number: int) -> Any:
            loss = self.model(**inputs).loss
            log.add(loss)
            return loss

        def on_train_batch_end(self, *outcome: Any) -> None:
            clock.tick()

        def configure_optimizers(self) -> Any:
            optimizer, schedule = optimizer_and_schedule(self.model, options.steps)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    run = library.Trainer(
        accelerator="cpu",
        max_steps=options.steps,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tempfile.mkdtemp(prefix="bench-"),
    )

    def train() -> list[float]:
        model.train()
        run.fit(Module(), loader(model, rows, batch, collator))
        return log.losses

    return train


def predictions(model: Any, rows: Any, batch: int, collator: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and labels of all rows, in their order."""
    model.eval()
    logits, labels = [], []
    with torch.no_grad():
        for inputs in loader(model, rows, batch, collator):
            logits.append(model(**inputs).logits)
            labels.append(inputs["labels"])
    return torch.cat(logits), torch.cat(labels)
