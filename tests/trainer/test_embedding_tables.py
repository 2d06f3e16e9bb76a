"""Gradients of the rows that were looked up: used where nobody but torch's own optimizers touches them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from trainer import runs

from burnish.engines import tables


class DecaysInPlace(torch.optim.SGD):
    """Adds weight decay to the gradients themselves, as older optimizers do."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.add_(parameter.detach(), alpha=0.1)
        return super().step(closure)


def weights(folder: Path, **settings: Any) -> dict[str, torch.Tensor]:
    run = runs.trainer(folder, max_steps=4, learning_rate=0.1, **settings)
    run.train()
    return run.model.state_dict()


@pytest.mark.parametrize("kind", [torch.optim.SGD, DecaysInPlace])
def test_weights_are_those_of_dense_gradients(
    kind: type[torch.optim.Optimizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {"optimizer_cls_and_kwargs": (kind, {"lr": 0.1}), "train_dataset": tiny.class_rows(16)}
    expected = weights(tmp_path / "dense", parts=parts)
    monkeypatch.setattr(tables, "FEWEST_ELEMENTS", 1)
    found = weights(tmp_path / "rows", parts=parts)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-6, rtol=1e-5, msg=name)
