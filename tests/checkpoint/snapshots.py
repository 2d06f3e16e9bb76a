"""Small real runs, and what a checkpoint of them is made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from burnish.checkpoint import store
from burnish.checkpoint.store import Snapshot
from burnish.core.progress import TrainerState

POSITION = {
    "rows": 16,
    "global_batch_size": 4,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "num_processes": 1,
    "seed": 42,
    "drop_last": False,
}


class Plain(nn.Module):
    """A module that knows nothing of transformers, with one weight under two names."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, width)
        self.body = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 12, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.body(self.embed(ids))))


def plain(seed: int = 0, **changes: Any) -> Plain:
    torch.manual_seed(seed)
    return Plain(**changes)


def adamw(model: nn.Module, **settings: Any) -> torch.optim.AdamW:
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    return torch.optim.AdamW(weights, **{"lr": 1e-2, **settings})


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2, seed: int = 7) -> None:
    """Takes steps with made-up gradients that depend on the step alone."""
    for step in range(steps):
        draw = torch.Generator().manual_seed(seed + step)
        for weight in model.parameters():
            if weight.requires_grad:
                weight.grad = torch.randn(weight.shape, generator=draw).to(weight.dtype)
        optimizer.step()


def snapshot(step: int = 2, run_id: str = "run-a", **changes: Any) -> Snapshot:
    """A snapshot of a plain model that was trained for two steps."""
    model = plain()
    optimizer = adamw(model)
    trained(model, optimizer)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    state = TrainerState(global_step=step, max_steps=10, epoch=0.5, num_examples_seen=4 * step)
    made = Snapshot(
        model, state, run_id, optimizer=optimizer, scheduler=scheduler, settings={"seed": 42}, position=POSITION
    )
    return replace(made, **changes)


def write(output_dir: Path, *steps: int, run_id: str = "run-a", **changes: Any) -> list[Path]:
    """Checkpoints of these steps."""
    return [store.write(output_dir, step, snapshot(step, run_id, **changes)) for step in steps]


def without_manifest(checkpoint: Path) -> Path:
    """What transformers would have written: no manifest, and no file of ours."""
    for name in ("manifest.json", "burnish.json", "training_args.json"):
        (checkpoint / name).unlink()
    return checkpoint


def differences(one: nn.Module, other: nn.Module) -> list[str]:
    """Names of weights that are not the same bits."""
    left, right = one.state_dict(), other.state_dict()
    assert left.keys() == right.keys()
    return [name for name, tensor in left.items() if not torch.equal(tensor, right[name])]
