"""Loads torch so that its threads share the machine with others."""

from __future__ import annotations

import os
import sys

from burnish.core.importing import importing

POLICY = "OMP_WAIT_POLICY"


def load_torch() -> None:
    """Imports torch with OpenMP threads that sleep while they wait, unless the user has set how they wait.

    By default they spin, and as soon as another process wants one of the cores, the thread that works waits for a
    thread that spins: a step of MiniLM on two shared cores took 1.4 to 4.1 s so, and 0.3 to 0.45 s with sleeping
    threads. OpenMP reads the variable when it is loaded; afterwards it is taken back.
    """
    if "torch" in sys.modules or POLICY in os.environ:
        return
    os.environ[POLICY] = "PASSIVE"
    try:
        with importing():
            import torch  # noqa: F401
    finally:
        del os.environ[POLICY]
