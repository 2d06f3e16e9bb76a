"""Tensors replayed through the heap of the C library."""

from __future__ import annotations

import sys

import pytest

from burnish.planning.heap import GRAPH_GONE, Ask, heap_peak

MIB = 1 << 20
ALIVE = 40 * 2 * MIB + 3 * MIB
"""The most bytes at once in `_layers(40)`."""


@pytest.fixture(scope="module")
def heap() -> None:
    if heap_peak([Ask(1, MIB), Ask(1, 0)], []) is None:
        assert not sys.platform.startswith("linux") or not _is_glibc()
        pytest.skip("the C library does not say how large its heap is")


def _is_glibc() -> bool:
    import platform

    name, version = platform.libc_ver()
    return name == "glibc" and tuple(map(int, version.split("."))) >= (2, 33)


def _layers(number: int, recorded: bool) -> list[Ask]:
    """A forward and a backward pass: each layer keeps one tensor and makes another that is given back at once."""
    forward = [
        ask
        for layer in range(number)
        for ask in (Ask(2 * layer, 3 * MIB, recorded), Ask(2 * layer + 1, 2 * MIB, recorded), Ask(2 * layer, 0))
    ]
    return [*forward, *(Ask(2 * layer + 1, 0) for layer in reversed(range(number))), GRAPH_GONE]


def test_what_is_given_back_is_used_again_by_what_is_smaller(heap) -> None:
    sizes = [5 * MIB - number * 64 * 1024 for number in range(20)]
    asks = [ask for number, size in enumerate(sizes) for ask in (Ask(number, size), Ask(number, 0))]
    assert 5 * MIB <= heap_peak(asks, []) < 3 * 5 * MIB


def test_small_objects_of_the_graph_leave_holes(heap) -> None:
    alone, in_graph = (heap_peak(_layers(40, recorded), []) for recorded in (False, True))
    assert ALIVE <= alone < 1.1 * in_graph
    assert in_graph > 1.3 * ALIVE


def test_states_of_the_optimizer_stay_for_the_second_step(heap) -> None:
    step = [Ask(1, 20 * MIB), Ask(1, 0)]
    assert heap_peak(step, [20 * MIB, 20 * MIB]) >= 59 * MIB
    # The next tensor of 20 MiB may not fit where the one before was, but what passes is gone by then.
    assert heap_peak(step, [], passing=[18 * MIB]) < 44 * MIB


def test_blocks_of_their_own_when_the_environment_asks_for_them(heap, monkeypatch) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    assert ALIVE <= heap_peak(_layers(40, True), []) < 1.02 * ALIVE + MIB


def test_gradients_are_given_back_after_the_update(heap) -> None:
    gradients = [Ask(number, 1 * MIB) for number in range(40)]
    assert heap_peak(gradients, []) < 60 * MIB
