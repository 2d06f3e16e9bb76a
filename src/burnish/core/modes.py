"""Training and evaluation mode of a model's modules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def in_evaluation(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode inside the context. Each module gets back the mode it had, since some are kept in
    one on purpose."""
    modes = {part: part.training for part in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
