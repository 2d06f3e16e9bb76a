"""Optimizers of bitsandbytes by name: they train, keep their states in 8 bits, and go on exactly from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from trainer import runs
from trainer.test_resume import STEPS, STOP, Stop, assert_same

pytest.importorskip("bitsandbytes")
pytestmark = pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU")

NAMES = ("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "lion_8bit", "paged_lion_8bit",
         "rmsprop_bnb_8bit", "ademamix_8bit")  # fmt: skip
SMALLEST_QUANTISED = 4096


def run(folder: Path, optim: str, callbacks: list[Any] | None = None) -> Any:
    """A model with matrices that are large enough for 8 bits, with dropout."""
    model = runs.classifier(hidden_size=64, intermediate_size=128, hidden_dropout_prob=0.1)
    parts = {"model": model, "callbacks": callbacks or []}
    return runs.trainer(folder, parts=parts, optim=optim, max_steps=STEPS, save_strategy="steps", save_steps=STOP)


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_is_the_run(name: str, tmp_path: Path) -> None:
    straight = run(tmp_path / "straight", name)
    before = runs.weights(straight.model)
    straight.train()
    assert runs.difference(straight.model, before) > 1e-3
    run(tmp_path / "broken", name, [Stop(STOP)]).train()
    resumed = run(tmp_path / "broken", name)
    resumed.train(resume_from_checkpoint=True)
    assert_same(straight, resumed)


def test_states_are_8_bits_wide_but_those_of_small_tensors_and_embeddings(tmp_path: Path) -> None:
    trainer = run(tmp_path, "adamw_8bit")
    trainer.train()
    kinds = {name: trainer.optimizer.state[weight]["state1"].dtype for name, weight in trainer.model.named_parameters()}
    sizes = {name: weight.numel() for name, weight in trainer.model.named_parameters()}
    wide = {name for name, kind in kinds.items() if kind == torch.float32}
    assert all(kind in (torch.uint8, torch.float32) for kind in kinds.values())
    assert wide == {
        name for name, size in sizes.items() if size < SMALLEST_QUANTISED or name.endswith("embeddings.weight")
    }
