"""AdamW on the rows of an embedding table that can move does what it does on the whole table."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from burnish.engines import rows, tables
from burnish.engines.precision import Precision
from burnish.engines.single import SingleEngine

YES = torch.tensor(True)
STEPS = [[[1, 2, 2], [3, 0, 0]], [[7, 7, 8], [8, 1, 1]], [[1, 9, 3], [5, 5, 5]], [[2, 2, 0], [2, 0, 0]]]


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "FEWEST_ELEMENTS", 1)
    monkeypatch.setattr(rows, "CHUNK_ELEMENTS", 10)  # two rows


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(60, 5, padding_idx=0)
        self.head = nn.Linear(5, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(ids).mean(1)).square().sum()


class Engine(SingleEngine):
    """With a model and an optimizer of its own, and steps of one micro-batch."""

    def __init__(self, **adam: Any) -> None:
        super().__init__(torch.device("cpu"), Precision(), max_grad_norm=0.05)
        self.words = Words()
        self.attach(self.words, torch.optim.AdamW(self.words.parameters(), lr=0.1, **{"weight_decay": 0.0, **adam}))

    def take(self, ids: list[list[int]]) -> None:
        self.backward(self.words(torch.tensor(ids)))
        self.clip(self.gradient_norm())
        self.update(YES)
        self.clear_gradients()

    def state(self) -> list[torch.Tensor]:
        found = self.optimizer.state[self.words.table.weight]
        return [
            *(p.detach().clone() for p in self.words.parameters()),
            *(found[name].clone() for name in sorted(found)),
        ]


def updated_by_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each update by rows was about."""
    counts: list[int] = []
    update = rows._update

    def counted(weight: Any, some: torch.Tensor, state: Any, group: Any) -> None:
        counts.append(len(some))
        update(weight, some, state, group)

    monkeypatch.setattr(rows, "_update", counted)
    return counts


@pytest.mark.parametrize("fused", [True, False])
def test_weights_and_moments_are_those_of_the_whole_table(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = updated_by_rows(monkeypatch)
    whole, by_rows = Engine(fused=fused), Engine(fused=fused)
    for ids in STEPS:
        whole.take(ids)
    with by_rows.touching_few_rows():
        for ids in STEPS:
            by_rows.take(ids)
    assert counts == [5, 7, 8]  # the first step makes the moments; padding (id 0) counts where it was looked up
    for one, other in zip(whole.state(), by_rows.state(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-6)


def test_moments_of_a_checkpoint_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = updated_by_rows(monkeypatch)
    whole, resumed = Engine(), Engine()
    for ids in STEPS:
        whole.take(ids)
    for ids in STEPS[:2]:
        resumed.take(ids)
    with resumed.touching_few_rows():
        for ids in STEPS[2:]:
            resumed.take(ids)
    assert counts == [7, 8]
    for one, other in zip(whole.state(), resumed.state(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("adam", [{"weight_decay": 0.1}, {"amsgrad": True}, {"maximize": True}])
def test_where_every_row_may_move_the_whole_table_is_updated(
    adam: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = updated_by_rows(monkeypatch)
    whole, other = Engine(**adam), Engine(**adam)
    for ids in STEPS:
        whole.take(ids)
    with other.touching_few_rows():
        for ids in STEPS:
            other.take(ids)
    assert counts == []
    for one, another in zip(whole.state(), other.state(), strict=True):
        torch.testing.assert_close(one, another, atol=1e-6, rtol=1e-5)


def test_many_rows_are_updated_with_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LARGEST_SHARE", 0.1)
    counts = updated_by_rows(monkeypatch)
    engine = Engine()
    with engine.touching_few_rows():
        for ids in STEPS:
            engine.take(ids)
    assert counts == [5]


def test_the_gradient_is_there_after_the_step_and_nothing_is_left_on_the_optimizer() -> None:
    engine = Engine()
    with engine.touching_few_rows():
        engine.take(STEPS[0])
        engine.backward(engine.words(torch.tensor(STEPS[1])))
        engine.update(YES)
        assert engine.words.table.weight.grad is not None and engine.words.table.weight.grad[7].any()
        engine.clear_gradients()
    assert not engine.optimizer._optimizer_step_pre_hooks and not engine.optimizer._optimizer_step_post_hooks
