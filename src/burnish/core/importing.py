"""Imports large packages in less time."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

_MANY = 50
"""Modules from which on what was imported is worth being left alone by the garbage collector."""


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Within, imports run without the garbage collector; for imports alone, since garbage stays until the end.

    A module's functions and classes stay as long as the process does, and the collector walks through all of them again
    and again while they grow: a fifth of the time that torch and a model of transformers take to import. Afterwards the
    collector runs as before. Where many modules were loaded, it leaves alone what is there by then (`gc.freeze`).
    """
    if not gc.isenabled():
        yield
        return
    before = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) - before >= _MANY:
            gc.freeze()
        gc.enable()
