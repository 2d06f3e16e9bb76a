"""Targets are judged against the best peer of a run, and say so where there was none."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
import source_tree

MEDIANS = {
    "transformers": {"cpu_seconds_per_step": 4.0, "peak_mib": 900.0},
    "trl": {"cpu_seconds_per_step": 3.0, "peak_mib": 1000.0},
    "bare": {"cpu_seconds_per_step": 3.5, "peak_mib": 800.0},
    "burnish": {"cpu_seconds_per_step": 1.5, "peak_mib": 400.0, "gemm_share": 0.5},
}


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(source_tree.ROOT / "benchmarks"))
    return importlib.import_module("targets")


def test_speed_is_over_the_best_of_all_peers_that_ran(targets: ModuleType) -> None:
    verdict = targets.faster(2).verdict(MEDIANS)
    assert verdict.value == pytest.approx(2.0) and verdict.met
    assert not targets.faster(2.1).verdict(MEDIANS).met


def test_speed_over_a_named_peer_leaves_the_others_out(targets: ModuleType) -> None:
    assert targets.faster(2, "transformers").verdict(MEDIANS).value == pytest.approx(4 / 1.5)


def test_overhead_is_what_is_added(targets: ModuleType) -> None:
    medians = {**MEDIANS, "burnish": {"cpu_seconds_per_step": 3.605}}
    verdict = targets.overhead(0.05, "bare").verdict(medians)
    assert verdict.value == pytest.approx(0.03) and verdict.met
    assert not targets.overhead(0.02, "bare").verdict(medians).met


def test_memory_is_a_share_of_the_peer_that_needs_least(targets: ModuleType) -> None:
    assert targets.share("peak_mib", 0.5).verdict(MEDIANS).value == pytest.approx(0.5)


def test_a_figure_of_our_own_is_compared_with_its_bound(targets: ModuleType) -> None:
    verdict = targets.own("gemm_share", 0.55, is_least=True).verdict(MEDIANS)
    assert verdict.met is False and "MISSED" in verdict.text


def test_a_peer_that_did_not_run_is_no_miss(targets: ModuleType) -> None:
    medians = {name: found for name, found in MEDIANS.items() if name != "trl"}
    verdict = targets.faster(2, "trl").verdict(medians)
    assert verdict.met is None and "'trl'" in verdict.text
