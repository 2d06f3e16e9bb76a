"""Warnings as one line for a person: no file, no line of code."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any

from burnish.core.processes import launch

from .console import complain


class _Lines(logging.Handler):
    """Looks up stderr at each message, since a live display takes its place for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.ERROR and launch().index > 0:
            return  # the first process says it
        complain(f"{'error' if record.levelno >= logging.ERROR else 'note'}: {record.getMessage()}")


@contextlib.contextmanager
def notices() -> Iterator[None]:
    """Within, what burnish logs from WARNING up and what is warned of goes to stderr, a line each."""
    logger = logging.getLogger("burnish")
    handler = _Lines(logging.WARNING)
    propagated = logger.propagate
    with warnings.catch_warnings():
        if not logging.getLogger().handlers:
            logger.addHandler(handler)
            logger.propagate = False
        warnings.showwarning = _show
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagated


def _show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    if launch().index == 0:
        complain(f"note: {message}")
