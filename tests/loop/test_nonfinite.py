"""A loss or gradient that is not finite: never applied unless asked for, never hidden, its rows named."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from looping import EverySoOften, Steps, batch, counts_of, linear, loop, mean_square, row, runner, step, weights
from torch import nn

from burnish.core.errors import NonFiniteError
from burnish.loop.nonfinite import NonFiniteWatch, nonfinite_rows
from burnish.objectives.objective import LossOf


def source(bad_at: int = 2) -> Steps:
    """Four steps a pass; step `bad_at` of the first holds a NaN in row 5."""
    steps = Steps(4)
    steps.replaced[0, bad_at] = step(batch(4), batch(5, 6, bad=5), index=bad_at)
    return steps


def weights_after(number: int) -> torch.Tensor:
    model = linear()
    loop(number, model=model).run()
    return weights(model)


def test_stop_keeps_the_weights_before_the_step_and_names_the_row() -> None:
    model = linear()
    run = loop(8, source(), model=model, rhythm=EverySoOften(save=4))
    with pytest.raises(NonFiniteError) as caught:
        run.run()
    assert torch.equal(weights(model), weights_after(2))
    message = str(caught.value)
    assert "step 3 (pass 1), rows [4, 5, 6]" in message and "for row 5." in message
    assert "weights are those after step 2" in message and "nonfinite_policy='skip'" in message
    assert run.actions.saved == []


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_stop_applies_nothing_after_the_first_bad_step_however_late_it_is_looked_at(optimizer: Any) -> None:
    model = linear()
    runs = runner(model, optimizer=optimizer(model.parameters(), lr=0.1))
    runs.take(step(batch(0, 1)))
    before = weights(model)
    assert runs.take(step(batch(2, 3, bad=3))) is not None
    runs.take(step(batch(4, 5)))
    assert torch.equal(weights(model), before)


def test_skip_leaves_the_step_out_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("burnish").propagate = True
    model, plain = linear(), linear()
    run = loop(4, source(), model=model, policy="skip", rhythm=EverySoOften(log=4))
    run.run()
    without = runner(plain)
    for index in (0, 1, 3):
        without.take(step(batch(2 * index, 2 * index + 1), index=index))
    assert torch.equal(weights(model), weights(plain))
    assert run.state.global_step == 4 and run.state.num_loss_steps == 3
    assert caplog.text.count("not finite") == 1 and "step 3" in caplog.text and "was left out" in caplog.text


def test_ignore_applies_it_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("burnish").propagate = True
    model = linear()
    loop(3, source(), model=model, policy="ignore").run()
    assert not torch.isfinite(weights(model)).any()
    assert "was applied, as nonfinite_policy='ignore' asks" in caplog.text


def test_a_gradient_alone_can_be_bad() -> None:
    model = linear()
    model[0].weight.register_hook(lambda gradient: gradient * float("inf"))
    before = weights(model)
    run = loop(2, model=model)
    with pytest.raises(NonFiniteError, match=r"The gradient is not finite \(norm (inf|nan), loss [0-9.]+\) in step 1"):
        run.run()
    assert torch.equal(weights(model), before)


def test_rows_that_are_bad_only_together() -> None:
    class Together(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :1] * self.weight * (float("nan") if len(x) > 1 else 1.0)

    with pytest.raises(NonFiniteError, match=r"alone, each of its rows has a finite loss"):
        loop(1, model=Together()).run()


# ---------------------------------------------------------------- naming rows


def named(model: nn.Module, *batches: Any, count: Any = counts_of) -> list[int]:
    engine = runner(model).engine
    return nonfinite_rows(model, LossOf(mean_square, "labels"), engine, step(*batches), count)


def test_each_bad_row_and_no_other_is_named() -> None:
    assert named(linear(), batch(0, 1, 2, bad=1), batch(3), batch(9, 4, bad=9)) == [1, 9]
    assert named(linear(), batch(0, 1)) == []


def test_a_row_without_a_target_is_not_accused() -> None:
    assert named(linear(), batch(0, 1, 2, bad=1, without=(0, 2))) == [1]
    assert named(linear(), batch(0, 1, 2, bad=1, without=(1,))) == []


def test_looking_for_rows_changes_no_mode_and_no_gradient() -> None:
    model = linear(0.5).train()
    model[2].eval()
    assert named(model, batch(0, 1, bad=0)) == [0]
    assert [part.training for part in model] == [True, True, False] and model.training
    assert all(p.grad is None for p in model.parameters())


def test_many_rows_are_cut_short() -> None:
    numbers = tuple(range(15))
    many = batch(*numbers)
    many.inputs["x"][:] = float("nan")
    steps = Steps(1)
    steps.replaced[0, 0] = step(many)
    with pytest.raises(NonFiniteError, match=r"for rows 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and more\."):
        loop(1, steps).run()
    assert row(3)[1] == 3.0  # the rows themselves are fine: it is the batch that was spoilt


def test_an_unknown_policy_is_ours_to_refuse() -> None:
    with pytest.raises(AssertionError, match="sometimes"):
        NonFiniteWatch("sometimes", torch.device("cpu"), lambda _: [])
