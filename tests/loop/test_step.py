"""One step: however it is cut, the same gradient; nothing without a target; the same dropout at the same place."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from looping import batch, linear, mean_square, runner, step, weights

from burnish.core.types import MicroBatch

ROWS = tuple(range(7))
SPLITS = {
    "whole": [ROWS],
    "one by one": [(number,) for number in ROWS],
    "uneven": [(6, 1), (0, 2, 3, 4), (5,)],
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("without", [(), (1, 4), (0, 1, 2, 3, 4)])
def test_any_split_takes_the_plain_step(split: str, without: tuple[int, ...]) -> None:
    model, plain = linear(), linear()
    taken = runner(model).take(step(*(batch(*rows, without=without) for rows in SPLITS[split])))
    loss = mean_square(plain, batch(*ROWS, without=without).inputs)
    loss.backward()
    with torch.no_grad():
        for p in plain.parameters():
            p -= 0.05 * p.grad
    norm = torch.cat([p.grad.flatten() for p in plain.parameters() if p.grad is not None]).norm()
    assert taken is not None and taken.finite
    torch.testing.assert_close(taken.loss, loss.detach())
    torch.testing.assert_close(taken.grad_norm, norm)
    torch.testing.assert_close(weights(model), weights(plain))
    assert all(p.grad is None for p in model.parameters())


def test_clipping_is_of_the_step_and_the_norm_is_told_before_it() -> None:
    model = linear()
    before = weights(model)
    taken = runner(model, clip=0.1).take(step(batch(0, 1), batch(2, 3)))
    assert taken is not None and taken.grad_norm > 0.1
    torch.testing.assert_close((before - weights(model)).norm(), torch.tensor(0.05 * 0.1), rtol=1e-3, atol=0)


def test_without_a_target_nothing_moves() -> None:
    model = linear()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    runs = runner(model, optimizer=optimizer)
    runs.take(step(batch(0, 1)))
    before = weights(model)
    moments = [value.clone() for state in optimizer.state.values() for value in state.values()]
    assert runs.take(step(batch(0, 1, without=(0, 1)), batch(2, without=(2,)))) is None
    assert torch.equal(weights(model), before)
    after = [value for state in optimizer.state.values() for value in state.values()]
    assert all(map(torch.equal, after, moments))


def test_a_micro_batch_without_a_target_is_not_computed() -> None:
    """Its mean would be 0 / 0."""
    model, seen = linear(), []
    model.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
    taken = runner(model).take(step(batch(0, 1, 2), batch(3, 4, without=(3, 4)), batch(5)))
    assert seen == [3, 1] and taken is not None and taken.finite


def test_events_of_a_step() -> None:
    runs = runner(linear())
    runs.take(step(batch(0), batch(1), batch(2)))
    assert runs.events.fired == ["on_substep_end"] * 2 + ["on_pre_optimizer_step", "on_optimizer_step"]  # type: ignore[attr-defined]


def test_gradients_can_be_looked_at_before_and_after_the_update() -> None:
    model: Any = linear()
    runs: Any = runner(model)
    start, found = weights(model), {}

    def look() -> None:
        found[runs.events.fired[-1]] = (model[0].weight.grad.clone(), weights(model))

    runs.events.at = {"on_pre_optimizer_step": look, "on_optimizer_step": look}
    runs.take(step(batch(0, 1)))
    assert torch.equal(found["on_pre_optimizer_step"][1], start)
    assert not torch.equal(found["on_optimizer_step"][1], start)
    assert torch.equal(found["on_pre_optimizer_step"][0], found["on_optimizer_step"][0])


def loss_with_dropout(*place: int, batches: tuple[MicroBatch, ...] = (batch(0, 1, 2),)) -> float:
    taken = runner(linear(0.5)).take(step(*batches, epoch=place[0], index=place[1]))
    assert taken is not None
    return taken.loss.item()


def test_dropout_depends_on_the_place_alone() -> None:
    first = loss_with_dropout(1, 2)
    random.random(), np.random.rand(), torch.rand(3)
    assert loss_with_dropout(1, 2) == first
    assert len({first, loss_with_dropout(1, 3), loss_with_dropout(2, 2)}) == 3


def test_micro_batches_drop_different_units() -> None:
    model = linear(0.5).train()
    masks: list[Any] = []
    model[1].register_forward_hook(lambda module, args, output: masks.append((output == 0).tolist()))
    runner(model).take(step(batch(0, 1, 2), batch(0, 1, 2)))
    assert masks[0] != masks[1]


def test_a_model_left_in_evaluation_is_trained_in_training() -> None:
    model = linear(0.5).eval()
    runner(model).take(step(batch(0)))
    assert model.training
    model[1].eval()  # frozen on purpose, and kept so
    runner(model).take(step(batch(0)))
    assert not model[1].training
