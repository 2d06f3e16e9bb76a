"""NEFTune: noise on the input embeddings while training (Jain et al. 2023, arXiv 2310.05914)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from burnish.core.errors import SettingError


@contextlib.contextmanager
def noisy_embeddings(model: nn.Module, alpha: float | None) -> Iterator[None]:
    """While the context lasts, embeddings of tokens get uniform noise in training mode, and none in evaluation mode.

    The noise of a row lies within ± alpha / sqrt(length · dim), its length being the tokens of the row that are not
    padding: so the noise does not depend on what a row is batched with. It is drawn from the global generator of the
    device. `alpha` None does nothing. Models inside adapters (peft) are found.

    Raises:
        SettingError: `alpha` is negative, or the model has no input embeddings.
    """
    if alpha is None:
        yield
        return
    if alpha < 0:
        raise SettingError(f"neftune_noise_alpha={alpha} must be 0 or more; 5 is usual.")
    noise = _Noise(alpha, _pad_token_id(model))
    handles = [table.register_forward_hook(noise) for table in _input_tables(model)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Noise:
    """A forward hook of an embedding: from token ids (batch, length) to (batch, length, dim)."""

    def __init__(self, alpha: float, pad_token_id: int | None) -> None:
        self.alpha = alpha
        self.pad_token_id = pad_token_id

    def __call__(self, table: nn.Module, args: tuple[Any, ...], embedded: torch.Tensor) -> torch.Tensor:
        if not table.training or embedded.dim() != 3:
            return embedded
        length, dim = embedded.shape[1:]
        lengths = self._lengths(args[0], length) if args else embedded.new_full((len(embedded),), length)
        bound = self.alpha / torch.sqrt(lengths * dim)  # (batch,)
        noise = torch.empty_like(embedded).uniform_(-1, 1)
        return embedded + noise * bound[:, None, None].to(embedded.dtype)

    def _lengths(self, ids: torch.Tensor, length: int) -> torch.Tensor:
        """Tokens of each row without its padding, as float32."""
        if self.pad_token_id is None or ids.is_floating_point():
            return torch.full((len(ids),), float(length), device=ids.device)
        return (ids != self.pad_token_id).sum(-1).clamp(min=1).float()


def _input_tables(model: nn.Module) -> list[nn.Module]:
    """The input embedding, and further embeddings that share its weight: an encoder-decoder such as T5 names one table
    as its input embedding and looks tokens up in two others."""
    get = getattr(model, "get_input_embeddings", None)
    try:
        first = get() if callable(get) else None
    except (NotImplementedError, AttributeError):
        first = None
    if not isinstance(first, nn.Module):
        raise SettingError(
            f"neftune_noise_alpha needs a model with input embeddings, and {type(model).__name__} names none: unset it."
        )
    weight, inside = getattr(first, "weight", None), set(first.modules())
    shared = [
        part
        for part in model.modules()
        if isinstance(part, nn.Embedding) and part.weight is weight and part not in inside
    ]
    return [first, *shared]


def _pad_token_id(model: nn.Module) -> int | None:
    token = getattr(getattr(model, "config", None), "pad_token_id", None)
    return token if isinstance(token, int) else None
