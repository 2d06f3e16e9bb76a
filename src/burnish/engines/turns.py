"""Forward passes in which all processes take part, called by processes that have unequally many of them.

Where weights lie in parts, a forward pass waits for the other processes. In a loop whose length depends on the data,
such as writing texts, they would wait for ever. Here they say before each pass which part of the model they are about
to call; all call the same part at once, and those who need another one, or none any more, call it in vain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import nn

from burnish.core.divided import base_of
from burnish.core.protocols import Processes

DONE, WHOLE, ENCODER, DECODER = 0, 1, 2, 3
"""What a process is about to call. The decoder is called by the model, which is given what the encoder has read."""


class Turns:
    """Forward passes of a model of transformers that reads and writes tokens.

    Args:
        processes: all of them enter `taken`, with the same model.
    """

    def __init__(self, processes: Processes, model: nn.Module, device: torch.device) -> None:
        self._processes, self._device = processes, device
        self._model: Any = cast(Any, base_of(model))
        config = getattr(self._model, "config", None)
        self._encoder: Any = self._model.get_encoder() if getattr(config, "is_encoder_decoder", False) else None
        self._inside: nn.Module | None = None

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """At the end, waits until the others have come there, too."""
        handles = [
            handle
            for part in (self._model, self._encoder)
            if part is not None
            for handle in (
                part.register_forward_pre_hook(self._before, prepend=True, with_kwargs=True),
                part.register_forward_hook(self._after, always_call=True),
            )
        ]
        try:
            yield
            self._wait_for(DONE)
        finally:
            for handle in handles:
                handle.remove()

    def _before(self, part: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        if self._inside is None:  # otherwise the encoder, called by the model
            self._wait_for(self._kind(part, kwargs))
            self._inside = part

    def _after(self, part: nn.Module, args: Any, output: Any) -> None:
        if self._inside is part:
            self._inside = None

    def _kind(self, part: nn.Module, kwargs: dict[str, Any]) -> int:
        if part is self._encoder:
            return ENCODER
        return WHOLE if kwargs.get("encoder_outputs") is None else DECODER

    def _wait_for(self, kind: int) -> None:
        """Calls what the others are about to call, until it is this process's turn."""
        while True:
            turn = int(max(row[0] for row in self._processes.table([float(kind)])))
            if turn == kind:
                return
            self._inside = self._model
            self._in_vain(turn)
            self._inside = None

    @torch.no_grad()
    def _in_vain(self, kind: int) -> None:
        token = torch.zeros(1, 1, dtype=torch.long, device=self._device)
        if kind == ENCODER:
            self._encoder(input_ids=token)
        elif self._encoder is None:
            self._model(input_ids=token, use_cache=False)
        elif kind == WHOLE:
            self._model(input_ids=token, decoder_input_ids=token, use_cache=False)
        else:
            self._model(encoder_outputs=(self._read(token),), decoder_input_ids=token, use_cache=False)

    def _read(self, token: torch.Tensor) -> torch.Tensor:
        """What an encoder would have made of one token."""
        config = self._model.config
        width = getattr(config, "d_model", None) or config.get_text_config().hidden_size
        weights = next(self._model.parameters())
        return torch.zeros(*token.shape, width, device=self._device, dtype=weights.dtype)
