"""Large embedding tables: the optimizer sees the gradient that torch would have made."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from burnish.engines import tables
from burnish.engines.precision import Precision
from burnish.engines.single import SingleEngine

YES = torch.tensor(True)


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "FEWEST_ELEMENTS", 1)


class Words(nn.Module):
    """A mean over embedded words, scored; with `reuse`, scored with the table itself, outside of its module."""

    def __init__(self, reuse: bool = False, by_name: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(12, 4, padding_idx=0)
        self.head = nn.Linear(4, 12)
        self.reuse, self.by_name = reuse, by_name

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        embedded = (self.table(input=ids) if self.by_name else self.table(ids)).mean(1)
        scores = functional.linear(embedded, self.table.weight) if self.reuse else self.head(embedded)
        return functional.cross_entropy(scores, ids[:, 0])


STEPS = [[[[1, 2, 2], [3, 0, 0]], [[5, 1, 0]]], [[[7, 7, 8]]], [[[1, 9, 3]], [[2, 2, 0]]]]
"""Steps of micro-batches of ids."""


def trained(model: nn.Module, gathers: bool, steps: list[Any] = STEPS, **adam: Any) -> list[torch.Tensor]:
    """Norm of each step, and the weights afterwards."""
    engine = SingleEngine(torch.device("cpu"), Precision(), max_grad_norm=0.05)
    engine.attach(model, torch.optim.AdamW(model.parameters(), lr=0.1, **adam))
    if gathers:
        with engine.touching_few_rows():
            norms = [_step(engine, model, step) for step in steps]
    else:
        norms = [_step(engine, model, step) for step in steps]
    return [torch.stack(norms), *(p.detach() for p in model.parameters())]


def _step(engine: SingleEngine, model: nn.Module, micro_batches: list[Any]) -> torch.Tensor:
    for ids in micro_batches:
        engine.backward(model(torch.tensor(ids)))
    norm = engine.gradient_norm()
    engine.clip(norm)
    engine.update(YES)
    engine.clear_gradients()
    return norm


@pytest.mark.parametrize("options", [{}, {"by_name": True}, {"reuse": True}])
def test_norms_and_weights_are_those_of_dense_gradients(options: dict[str, bool]) -> None:
    plain, gathered = (trained(Words(**options), gathers, weight_decay=0.1) for gathers in (False, True))
    for one, other in zip(plain, gathered, strict=True):
        torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-5)


def test_a_table_in_evaluation_mode_has_its_gradient_too() -> None:
    plain, gathered = Words(), Words()
    plain.table.eval()
    gathered.table.eval()
    for one, other in zip(trained(plain, False), trained(gathered, True), strict=True):
        torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-5)


def test_a_step_that_is_not_finite_leaves_nothing_behind() -> None:
    model = Words()
    engine = SingleEngine(torch.device("cpu"), Precision(), max_grad_norm=1.0)
    engine.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with engine.touching_few_rows():
        engine.backward(model(torch.tensor([[1, 2]])) * float("nan"))
        norm = engine.gradient_norm()
        engine.clip(norm)
        engine.update(torch.tensor(False))
        engine.clear_gradients()
        engine.backward(model(torch.tensor([[3, 4]])))
        assert torch.isfinite(engine.gradient_norm()) and torch.isfinite(model.table.weight.grad).all()
    assert model.table.weight.grad is None and not model.table.sparse
    assert not model.table._forward_hooks and not model.table.weight._backward_hooks


def test_tables_that_are_left_as_they_are() -> None:
    tied = Words()
    tied.head.weight = tied.table.weight
    frozen = Words()
    frozen.table.requires_grad_(False)
    scaled = nn.Embedding(3, 2, scale_grad_by_freq=True)
    assert [tables.EmbeddingTables(model).modules for model in (tied, frozen, scaled)] == [[], [], []]
