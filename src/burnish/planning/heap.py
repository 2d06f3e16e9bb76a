"""Room that the C library's heap takes beyond the tensors in it.

A freed block is used again for what fits into it. torch asks for tensors at multiples of 64 bytes, so the library cuts
them out of blocks that are a little larger, and the small objects of a step, nodes of the graph above all, settle in
what is left over: the next tensor of the same size then fits no more, and the heap grows. How much depends on the order
in which a step asks for memory and gives it back. That order is known from a step without numbers, and is replayed
here with the C library itself, in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from . import replay

ALIGNMENT = 64
"""Of the tensors of torch on the CPU, in bytes."""
TENSOR = (24, 104, 184)
"""Bytes of the small objects of a tensor, gone with it: count of versions, storage, and the tensor."""
NODE = (24, 24, 24, 488), (24, 24, 40)
"""Bytes of small objects of an operation that the graph records, before and after its tensor; gone with the graph. Both
as found by counting blocks in runs of MiniLM, for each tensor of a forward pass."""
SECONDS = 60


class Ask(NamedTuple):
    """A tensor is asked for, or given back."""

    tensor: int
    bytes: int
    """0: given back."""
    recorded: bool = False
    """Whether an operation made it that the graph records."""


GRAPH_GONE = Ask(-1, 0)
"""The loss of a micro-batch is given back, and the graph with it."""


def heap_peak(asks: Sequence[Ask], lasting: Sequence[int], passing: Sequence[int] = ()) -> int | None:
    """Bytes that the heap takes at most in two steps, of which the first leaves the optimizer's states.

    Args:
        asks: of the micro-batches of a step, up to the update.
        lasting: bytes of each of the optimizer's states.
        passing: bytes of what an update needs for its own time.

    Returns:
        None where the C library does not tell, which that of Linux (glibc, from 2.33 on) does.
    """
    events = array("q")
    for event in _Blocks().of_run(asks, lasting, passing):
        events.extend(event)
    command = [sys.executable, "-I", "-S", str(Path(replay.__file__))]
    try:
        done = subprocess.run(command, input=events.tobytes(), capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return int(done.stdout) if done.returncode == 0 else None


class _Blocks:
    """Numbers the blocks of a run: tensors, and the small objects that come with them."""

    def __init__(self) -> None:
        self._last = 0
        self._graph: list[int] = []
        self._tensors: dict[int, list[int]] = {}

    def of_run(
        self, asks: Sequence[Ask], lasting: Sequence[int], passing: Sequence[int]
    ) -> Iterator[tuple[int, int, int]]:
        for step in range(2):
            for ask in asks:
                yield from self._of(ask)
            for size in lasting if step == 0 else ():
                yield from self._tensor(size, [])
            blocks: list[int] = []
            for size in passing:
                yield from self._tensor(size, blocks)
            yield from self._given_back(blocks)
            for blocks in self._tensors.values():  # gradients
                yield from self._given_back(blocks)
            self._tensors.clear()

    def _of(self, ask: Ask) -> Iterator[tuple[int, int, int]]:
        if ask == GRAPH_GONE:
            yield from self._given_back(self._graph)
            self._graph = []
        elif ask.bytes == 0:
            yield from self._given_back(self._tensors.pop(ask.tensor))
        else:
            before, after = NODE if ask.recorded else ((), ())
            yield from self._small(before, self._graph)
            yield from self._tensor(ask.bytes, self._tensors.setdefault(ask.tensor, []))
            yield from self._small(after, self._graph)

    def _tensor(self, size: int, blocks: list[int]) -> Iterator[tuple[int, int, int]]:
        yield from self._small(TENSOR, blocks)
        yield self._new(size, ALIGNMENT, blocks)

    def _small(self, sizes: Sequence[int], blocks: list[int]) -> Iterator[tuple[int, int, int]]:
        for size in sizes:
            yield self._new(size, 0, blocks)

    def _new(self, size: int, alignment: int, blocks: list[int]) -> tuple[int, int, int]:
        self._last += 1
        blocks.append(self._last)
        return self._last, size, alignment

    @staticmethod
    def _given_back(blocks: list[int]) -> Iterator[tuple[int, int, int]]:
        for block in blocks:
            yield block, 0, 0
