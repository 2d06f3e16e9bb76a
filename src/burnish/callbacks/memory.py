"""Giving back device memory that is not used."""

from __future__ import annotations

from typing import Any

import torch

from burnish.core.events import TrainerCallback
from burnish.core.progress import TrainerControl, TrainerState


class EmptyCacheCallback(TrainerCallback):
    """Gives cached device memory back every `torch_empty_cache_steps` steps: less memory, some time."""

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        every = args.torch_empty_cache_steps
        if every is not None and state.global_step % every == 0:
            empty_cache()


def empty_cache() -> None:
    """Gives back what torch keeps of a device's memory without using it. Nothing happens on the CPU."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    elif torch.backends.mps.is_available():
        torch.mps.empty_cache()
