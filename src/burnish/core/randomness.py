"""Randomness that is counted, not consumed.

Every draw of a run has a purpose, and its seed is a function of (seed, purpose, counters). So nothing that draws in
between (an evaluation, a log, a resume, another number of workers) can change what is drawn later.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator

import numpy as np
import torch

# Purposes: one word each, in one place, so that no two draws share a seed by accident.
ORDER = "order"
EXAMPLE = "example"
COLLATION = "collation"
EVALUATION = "evaluation"
DROPOUT = "dropout"
MODEL_INIT = "model_init"
GENERATION = "generation"


def seed_for(seed: int, purpose: str, *counters: int) -> int:
    """A seed of 63 bits for one draw. Equal arguments give equal seeds, on every machine and Python version."""
    text = ":".join([str(seed), purpose, *map(str, counters)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator_for(seed: int, purpose: str, *counters: int) -> torch.Generator:
    """A torch generator on the CPU for one draw; the global generators are not touched."""
    return torch.Generator().manual_seed(seed_for(seed, purpose, *counters))


def seed_all(seed: int) -> None:
    """Seeds the global generators of Python, numpy and torch (every device in use). `seed` has up to 64 bits.

    Devices that were not used yet are left alone: torch would keep the call, with a stack trace, for each of them until
    they are, which costs more than all the rest when it is done for every micro-batch.
    """
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Leaves the global generators as they were found, whatever is drawn inside. Devices that are not in use yet are
    left alone, as by `seed_all`: asking for the state of one would start it."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    on_cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    on_mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if on_cuda:
            torch.cuda.set_rng_state_all(on_cuda)
        if on_mps is not None:
            torch.mps.set_rng_state(on_mps)
