"""Memory that runs out within a step: the step is cut smaller and stays the same step."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from looping import Recorder, batch, counts_of, linear, mean_square, runner, step, weights
from torch import nn

from burnish.core.errors import OutOfMemoryError
from burnish.core.types import Counts, Inputs, MicroBatch
from burnish.loop.evaluating import EvaluationLoop
from burnish.loop.memory import MemoryLimit, in_parts_that_fit
from burnish.loop.step import StepRunner

SAID = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate"


def counted(inputs: Inputs, rows: Sequence[int]) -> MicroBatch:
    return MicroBatch(inputs, tuple(rows), counts_of(inputs), len(rows), len(rows))


class Scarce(nn.Module):
    """A model for `most` rows at once: beyond, memory runs out in the forward or in the backward pass."""

    def __init__(self, most: int, when: str, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner, self.most, self.when = linear(dropout), most, when
        self.seen: list[int] = []
        self.made: list[weakref.ref[torch.Tensor]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(x))
        output: torch.Tensor = self.inner(x)
        self.made.append(weakref.ref(output))
        if len(x) > self.most:
            if self.when == "forward":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nSee documentation")
            output.register_hook(_fail)
        return output


def _fail(gradient: torch.Tensor) -> None:
    raise RuntimeError(SAID)


def scarce(most: int, when: str = "forward", dropout: float = 0.0) -> tuple[Scarce, StepRunner]:
    model = Scarce(most, when, dropout)
    runs = runner(model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.05))
    runs.limit = MemoryLimit(counted)
    return model, runs


STEPS = [step(batch(0, 1, 2), batch(*range(3, 11)), index=0), step(batch(*range(8)), batch(9), index=1)]


@pytest.mark.parametrize("when", ["forward", "backward"])
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_the_weights_are_those_of_a_run_with_enough_memory(most: int, when: str) -> None:
    model, runs = scarce(most, when)
    plain, enough = scarce(99)
    for one in STEPS:
        taken, expected = runs.take(one), enough.take(one)
        assert taken is not None and expected is not None
        torch.testing.assert_close(taken.loss, expected.loss)
    assert max(model.seen) > most and model.seen[-1] <= most and len(plain.seen) == 4
    torch.testing.assert_close(weights(model), weights(plain), atol=1e-6, rtol=0)


@pytest.mark.parametrize("when", ["forward", "backward"])
def test_the_same_cuts_give_the_same_bits(when: str) -> None:
    """Also with dropout: what is drawn depends on step and number of the micro-batch, and not on what was tried."""
    model, runs = scarce(4, when, dropout=0.5)
    plain, enough = scarce(99, dropout=0.5)
    enough.limit.positions = 4
    for one in STEPS:
        runs.take(one)
        enough.take(one)
    assert model.seen == [3, 8, 3, 4, 4, 4, 4, 1] and plain.seen == [3, 4, 4, 4, 4, 1]
    assert torch.equal(weights(model), weights(plain))


def test_a_limit_is_told_once_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    model, runs = scarce(3)
    with caplog.at_level(logging.WARNING, "burnish"):
        for one in STEPS:
            runs.take(one)
    assert model.seen[:6] == [3, 8, 3, 4, 1, 2] and set(model.seen[6:]) == {2, 1}
    (message,) = [record.getMessage() for record in caplog.records]
    assert "at most 2 tokens" in message and "token_budget=2" in message


def test_parts_without_a_target_are_left_out() -> None:
    """Their mean would be 0 / 0."""
    model, runs = scarce(2)
    plain, enough = scarce(99)
    one = step(batch(0, 1, 2, 3, without=(0, 1)))
    taken, expected = runs.take(one), enough.take(one)
    assert taken is not None and expected is not None and taken.finite
    assert model.seen == [4, 2] and plain.seen == [4]
    torch.testing.assert_close(weights(model), weights(plain))


@pytest.mark.parametrize("when", ["forward", "backward"])
def test_nothing_of_the_failed_attempt_is_held(when: str) -> None:
    model, runs = scarce(4, when)
    gc.disable()
    try:
        runs.take(step(batch(*range(8))))
    finally:
        gc.enable()
    assert [made() for made in model.made] == [None, None, None]


def test_a_single_row_that_does_not_fit() -> None:
    model, runs = scarce(0)
    before = weights(model)
    with pytest.raises(
        OutOfMemoryError, match=r"row 3 alone, of 1 tokens.*gradient_checkpointing=True.*2\.00 GiB\.\)$"
    ):
        runs.take(step(batch(3)))
    with pytest.raises(OutOfMemoryError, match="row 0 alone"):
        runs.take(step(batch(0, 1, 2)))
    assert torch.equal(weights(model), before) and all(p.grad is None for p in model.parameters())


def test_an_error_says_all_there_is_without_holding_tensors() -> None:
    model, runs = scarce(0)
    with pytest.raises(OutOfMemoryError) as raised:
        runs.take(step(batch(3)))
    assert raised.value.__cause__ is None and raised.value.__context__ is None
    assert [made() for made in model.made] == [None]


def test_a_batch_that_stays_whole() -> None:
    _, runs = scarce(2)
    runs.limit = MemoryLimit(None)
    with pytest.raises(OutOfMemoryError, match=r"batch of 3 rows .* left whole.*per_device_train_batch_size"):
        runs.take(step(batch(0, 1, 2)))


@pytest.mark.parametrize("further", [{"patches": torch.ones(5, 2)}, {"names": ["a", "b", "c"]}])
def test_inputs_that_do_not_show_their_rows(further: dict[str, Any]) -> None:
    _, runs = scarce(2)
    one = batch(0, 1, 2)
    mixed = MicroBatch({**one.inputs, **further}, one.rows, one.counts, 3, 3)
    with pytest.raises(OutOfMemoryError, match="do not show which part belongs to which row"):
        runs.take(step(mixed))


def test_other_errors_pass() -> None:
    model, runs = scarce(99)
    model.register_forward_pre_hook(lambda module, args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        runs.take(step(batch(0)))


def test_positions_and_not_rows_are_limited() -> None:
    def rows_of(length: int, *rows: int) -> MicroBatch:
        return MicroBatch({"x": torch.ones(len(rows), length)}, rows, Counts(len(rows), 1, 1), 1, len(rows) * length)

    limit = MemoryLimit(lambda inputs, rows: rows_of(inputs["x"].shape[1], *rows))
    batches = [rows_of(100, 0), rows_of(10, 1, 2, 3), rows_of(2, *range(4, 14))]
    limit.positions = 20
    assert [part.rows for part in limit.cut(batches)] == [(0,), (1,), (2, 3), tuple(range(4, 14))]


# ---------------------------------------------------------------- evaluation


def evaluated(most: int, may_cut: bool = True) -> tuple[float | None, list[int], Scarce]:
    model, runs = scarce(most)
    labels: list[int] = []

    def predict(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            return mean_square(model, inputs), model(inputs["x"]), inputs["y"]

    class Labels:
        def add(self, values: Any, rows: Any = None) -> None:
            labels.extend(values.tolist())

        def result(self) -> Any: ...

    loop = EvaluationLoop(
        predict, counts_of, "labels", Recorder(), {"labels": Labels()},
        parts=partial(in_parts_that_fit, runs.engine, may_cut),
    )  # fmt: skip
    mean, rows = loop.run([batch(*range(7)).inputs, batch(7, 8, without=(7,)).inputs])
    assert rows == 9 and loop.events.fired == ["on_prediction_step"] * 2  # type: ignore[attr-defined]
    return mean.value, labels, model


@pytest.mark.parametrize("most", [1, 2, 6])
def test_an_evaluation_goes_on_in_halves(most: int) -> None:
    loss, labels, model = evaluated(most)
    expected, all_labels, _ = evaluated(99)
    assert loss == pytest.approx(expected) and labels == all_labels
    assert [made() for made in model.made] == [None] * len(model.made)


def test_an_evaluation_that_does_not_fit() -> None:
    with pytest.raises(OutOfMemoryError, match=r"batch of 1 rows .* smaller per_device_eval_batch_size"):
        evaluated(0)
    with pytest.raises(OutOfMemoryError, match="batch of 7 rows that cannot be cut"):
        evaluated(5, may_cut=False)
