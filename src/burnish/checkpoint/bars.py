"""Saves and uploads in the middle of a run draw no bars of their own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_inside: list[tuple[bool, bool]] = []
"""For each that is inside now: which bars were shown before the first one."""


@contextlib.contextmanager
def no_progress_bars() -> Iterator[None]:
    """What is done inside draws no bars of transformers and huggingface_hub. They have one switch for all threads, and
    a save and an upload overlap: the last one to leave puts it back."""
    from huggingface_hub import utils as hub
    from transformers.utils import logging as transformers

    with _lock:
        _inside.append(_inside[0] if _inside else (transformers.is_progress_bar_enabled(), _hub_shows_bars()))
        transformers.disable_progress_bar()  # those of the hub, too
    try:
        yield
    finally:
        with _lock:
            of_transformers, of_hub = _inside.pop()
            if not _inside and of_transformers:
                transformers.enable_progress_bar()
            if not _inside and of_hub != _hub_shows_bars():
                (hub.enable_progress_bars if of_hub else hub.disable_progress_bars)()


def _hub_shows_bars() -> bool:
    from huggingface_hub.utils import are_progress_bars_disabled

    return not are_progress_bars_disabled()
