"""What a run is measured against: known for GPUs by their names, measured where that is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from burnish.tracking.memory import memory_in_use, peak_memory
from burnish.tracking.pace import Mark, rates_between
from burnish.tracking.peak import KNOWN, known_peak, peak_flops

NAMES = {
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H200": "H200",
    "NVIDIA A100-SXM4-80GB": "A100",
    "NVIDIA A10": "A10",
    "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S",
    "Tesla T4": "T4",
    "Tesla V100-SXM2-16GB": "V100",
}


@pytest.mark.parametrize("name", NAMES)
def test_known_by_name(name: str) -> None:
    assert known_peak(name) == KNOWN[NAMES[name]]


@pytest.mark.parametrize("name", ["NVIDIA A10G", "NVIDIA H200 MIG 1g.18gb", "NVIDIA GeForce RTX 3090 Ti", "Radeon"])
def test_others_are_not_guessed(name: str) -> None:
    assert known_peak(name) is None


def settings(**changes: Any) -> Any:
    return SimpleNamespace(**{"bf16": False, "fp16": False, "measure_peak": False, **changes})


def test_a_cpu_is_measured_where_that_is_asked_for() -> None:
    model = nn.Linear(2, 2)
    assert peak_flops(model, settings()) is None
    assert peak_flops(nn.ReLU(), settings(measure_peak=True)) is None
    state = torch.get_rng_state()
    found = peak_flops(model, settings(measure_peak=True))
    assert found is not None and 1e8 < found < 1e14
    assert peak_flops(model, settings(measure_peak=True)) == found, "measured once"
    assert torch.equal(torch.get_rng_state(), state)


def test_the_share_that_is_reached() -> None:
    rates = rates_between(Mark(0, 0, 0, 0, 0, 1e9), Mark(2, 8, 80, 100, 100, 5e9))
    assert rates.share_of(8e9) == pytest.approx(0.25)
    assert rates.share_of(None) is None
    assert rates_between(Mark(0, 0, 0, 0, 0), Mark(2, 8, 80, 100, 100)).share_of(8e9) is None


def test_the_peak_of_memory_is_no_less_than_what_is_in_use() -> None:
    peak, now = peak_memory(), memory_in_use()
    assert peak is not None and now is not None and peak >= now * 0.99
