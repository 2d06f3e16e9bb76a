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

DONE, WHOLE, ENCODER = 0, 1, 2


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
        self._is_inside = False

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """At the end, waits until the others have come there, too."""
        parts = {WHOLE: self._model, ENCODER: self._encoder}
        handles = [
            handle
            for kind, part in parts.items()
            if part is not None
            for handle in (
                part.register_forward_pre_hook(self._before(kind), prepend=True),
                part.register_forward_hook(self._after(kind), always_call=True),
            )
        ]
        try:
            yield
            self._wait_for(DONE)
        finally:
            for handle in handles:
                handle.remove()

    def _before(self, kind: int) -> Any:
        def hook(module: nn.Module, args: Any) -> None:
            if self._is_inside:
                return  # the encoder, called by the model
            self._wait_for(kind)
            self._is_inside, self._kind = True, kind

        return hook

    def _after(self, kind: int) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if self._is_inside and self._kind == kind:
                self._is_inside = False

        return hook

    def _wait_for(self, kind: int) -> None:
        """Calls what the others are about to call, until it is this process's turn."""
        while True:
            turn = int(max(row[0] for row in self._processes.table([float(kind)])))
            if turn == kind:
                return
            self._is_inside, self._kind = True, turn
            self._in_vain(turn)
            self._is_inside = False

    @torch.no_grad()
    def _in_vain(self, kind: int) -> None:
        token = torch.zeros(1, 1, dtype=torch.long, device=self._device)
        if kind == ENCODER:
            self._encoder(input_ids=token)
        elif self._encoder is None:
            self._model(input_ids=token, use_cache=False)
        else:
            self._model(encoder_outputs=(self._read(token),), decoder_input_ids=token, use_cache=False)

    def _read(self, token: torch.Tensor) -> torch.Tensor:
        """What an encoder would have made of one token."""
        config = self._model.config
        width = getattr(config, "d_model", None) or config.get_text_config().hidden_size
        weights = next(self._model.parameters())
        return torch.zeros(*token.shape, width, device=self._device, dtype=weights.dtype)
