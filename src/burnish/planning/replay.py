"""Asks the C library for blocks of memory and gives them back, in the order that it reads, and writes how much it took.

A program of its own, so that it begins with an empty heap. The blocks are not written to, so they take addresses and no
memory. It reads triples of 64-bit integers (number of the block, bytes, alignment): bytes above 0 ask for the block, 0
gives it back; alignment 0 is that of `malloc`. It writes the bytes that the heap and blocks of their own took at most.
"""

from __future__ import annotations

import ctypes
import sys
from array import array

LARGE = 32 << 20
"""Bytes from which on the C library of Linux takes a block of its own from the system, and gives it back."""


class _Info(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
                     "keepcost")
    )  # fmt: skip


class Heap:
    """The heap of this process. Raises `AttributeError` where the C library does not say how large it is."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._info, self._ask, self._ask_aligned, self._give = (
            library.mallinfo2, library.malloc, library.memalign, library.free,
        )  # fmt: skip
        self._info.restype = _Info
        self._ask.restype = self._ask_aligned.restype = ctypes.c_void_p
        self._ask.argtypes, self._give.argtypes = (ctypes.c_size_t,), (ctypes.c_void_p,)
        self._ask_aligned.argtypes = ctypes.c_size_t, ctypes.c_size_t
        # giving back a block of its own raises the size from which on blocks are: in a run that has happened long ago
        self._give(self._ask(LARGE - (64 << 10)))

    def taken(self) -> int:
        """Bytes taken from the system."""
        info = self._info()
        return int(info.arena + info.hblkhd)

    def most_taken(self, events: array[int]) -> int:
        """The most that these blocks took. Raises `MemoryError` where there are no more addresses."""
        places: dict[int, int] = {}
        before = most = self.taken()
        numbers = iter(events)
        for block, size, alignment in zip(numbers, numbers, numbers, strict=True):
            if size == 0:
                self._give(places.pop(block))
                continue
            place = self._ask_aligned(alignment, size) if alignment else self._ask(size)
            if place is None:
                raise MemoryError
            places[block] = place
            if alignment:
                most = max(most, self.taken())
        return most - before


def main() -> None:
    events = array("q")
    events.frombytes(sys.stdin.buffer.read())
    print(Heap().most_taken(events))


if __name__ == "__main__":
    main()
