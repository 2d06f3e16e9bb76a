"""Settings of every test: no network, one thread, and the global random state kept."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("OMP_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # a shell ignores Ctrl-C for what it runs in the background, and so would all that the tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _random_state_kept() -> Iterator[None]:
    """Keeps each test's draws to itself. Tests that never loaded torch do not load it for this."""
    if "torch" not in sys.modules:
        yield
        return
    from burnish.core.randomness import kept

    with kept():
        yield
