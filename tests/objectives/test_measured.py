"""What a loss is a mean over is found from three losses."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

from burnish.core.types import Counts, MicroBatch
from burnish.objectives.measured import measure, rounding, undisturbed, unlike

A, B = Counts(1, 4, 3), Counts(1, 10, 9)


def mean(a: float, b: float, count: str) -> float:
    of_a, of_b = getattr(A, count), getattr(B, count)
    return float(of_a * a + of_b * b) / (of_a + of_b)


@pytest.mark.parametrize("true", Counts._fields)
@pytest.mark.parametrize("expected", Counts._fields)
def test_each_count_is_found_whatever_was_expected(true: str, expected: str) -> None:
    finding = measure(1.0, 3.0, mean(1.0, 3.0, true), A, B, expected, tolerance=1e-3)
    assert finding.mean_over == true and finding.settled


def test_a_sum_or_a_contrast_is_no_mean() -> None:
    for both in (4.0, 0.5, 3.5):
        assert measure(1.0, 3.0, both, A, B, "labels", 1e-3).mean_over is None


def test_examples_that_tell_nothing_leave_what_was_expected() -> None:
    for expected in Counts._fields:
        alike = measure(2.0, 2.0, 2.0, A, B, expected, 1e-3)
        same = measure(1.0, 3.0, 2.0, Counts(1, 5, 5), Counts(1, 5, 5), expected, 1e-3)
        unknown = measure(float("nan"), 1.0, 1.0, A, B, expected, 1e-3)
        assert {finding.mean_over for finding in (alike, same, unknown)} == {expected}
        assert not (alike.settled or same.settled or unknown.settled)


def test_rounding_is_forgiven_and_no_more() -> None:
    both = mean(1.0, 3.0, "labels")
    assert measure(1.0, 3.0, both * 1.0005, A, B, "labels", 1e-3).mean_over == "labels"
    assert measure(1.0, 3.0, both * 1.01, A, B, "labels", 1e-3).mean_over is None


def test_less_precise_weights_round_more() -> None:
    exact, coarse = nn.Linear(2, 2), nn.Linear(2, 2).to(torch.bfloat16)
    assert rounding(exact) == rounding(exact.double()) < rounding(coarse)
    assert rounding(nn.Sequential(exact, coarse)) == rounding(coarse)


def one(labels: int, next_labels: int, tokens: int) -> MicroBatch:
    return MicroBatch({}, (0,), Counts(1, labels, next_labels), tokens, tokens)


def test_the_two_that_differ_most() -> None:
    assert set(unlike([one(5, 4, 9), one(2, 1, 9), one(9, 8, 9), one(0, 0, 9)]) or ()) == {1, 2}
    assert set(unlike([one(1, 1, 9), one(1, 1, 3), one(1, 1, 20)]) or ()) == {1, 2}
    assert set(unlike([one(1, 1, 9), one(1, 1, 9)]) or ()) == {0, 1}
    assert unlike([one(1, 1, 9), one(0, 0, 9), one(1, 0, 9)]) is None
    assert unlike([]) is None


def test_a_measurement_leaves_no_trace() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.BatchNorm1d(2)).train()
    model[2].eval()  # frozen on purpose
    running = model[2].running_mean.clone()
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[union-attr]
    with undisturbed(model):
        assert torch.equal(model(torch.ones(3, 2)), model(torch.ones(3, 2)))
        random.random(), np.random.rand(), torch.rand(1)
    assert [part.training for part in model] == [True, True, False] and model.training
    assert torch.equal(model[2].running_mean, running)
    assert random.getstate() == before[0] and np.random.get_state()[1].tolist() == before[1]  # type: ignore[union-attr]
    assert torch.equal(torch.get_rng_state(), before[2])
