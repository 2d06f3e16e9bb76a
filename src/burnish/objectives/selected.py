"""Language-model losses that compute the output layer at positions with a target, and nowhere else.

The model runs as it is, without labels; what enters its output layer is taken out, and the layer itself sees one
position, so that the model's forward ends as it always does. The positions with a target then go through the output
layer in chunks. A chunk's logits are freed before the next is made: the gradient of each is taken at once, so that
(tokens × vocabulary) is never in memory and nothing is computed twice. The idea of taking the gradient in the forward
pass is that of Liger Kernel (Hsu et al., 2024, arXiv 2410.10989).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from burnish.core.types import IGNORED_LABEL, Inputs

CHUNK_ELEMENTS = 1 << 24
"""Logits of a chunk: 64 MiB in float32, large enough for a matrix product to be at its best."""

Score = Callable[[torch.Tensor], torch.Tensor]
"""Hidden states (positions, hidden) to logits (positions, vocabulary)."""


@dataclass(frozen=True)
class SelectedLoss:
    """Mean cross-entropy of a language model over positions with a target.

    Args:
        head: the part of the model that makes logits of hidden states, transforms included.
        finish: what the model does to the logits afterwards (soft-capping, scaling).
        shifts_labels: position i predicts label i + 1.
        decoder_inputs: for encoder-decoder models, labels to decoder inputs.
        passes_use_cache: switch the cache of keys and values off for the call.
        label_smoothing: share of the target that is spread evenly over the vocabulary.
    """

    head: nn.Module
    finish: Callable[[torch.Tensor], torch.Tensor]
    shifts_labels: bool
    decoder_inputs: Callable[[torch.Tensor], torch.Tensor] | None = None
    passes_use_cache: bool = False
    label_smoothing: float = 0.0

    def __call__(self, model: nn.Module, inputs: Inputs, num_targets: int | None = None) -> torch.Tensor:
        """The loss (0-dimensional, float32) of a batch with `labels` (batch, length).

        Args:
            num_targets: how many positions have a target, where the host knows. Otherwise it asks the device, and waits
                until that has done all that it was asked before. With a wrong number the loss is NaN.
        """
        given = {name: value for name, value in inputs.items() if name != "labels"}
        labels = inputs["labels"]
        if self.decoder_inputs is not None and "decoder_input_ids" not in given:
            given["decoder_input_ids"] = self.decoder_inputs(labels)
        if self.passes_use_cache:
            given.setdefault("use_cache", False)
        with self._taking() as taken:
            model(**given)
        hidden = taken[0]
        if hidden.shape[:2] != labels.shape:
            raise ValueError(f"hidden states {tuple(hidden.shape)} do not go with labels {tuple(labels.shape)}")
        if self.shifts_labels:
            hidden, labels = hidden[:, :-1], labels[:, 1:]
        has_target = labels.flatten().ne(IGNORED_LABEL)
        index = _places(has_target, num_targets)
        targets = labels.flatten().index_select(0, index)
        chosen = hidden.flatten(0, 1).index_select(0, index)
        loss = summed_cross_entropy(chosen, targets, self._score, self.head, self.label_smoothing) / len(targets)
        return loss if num_targets is None else loss.where(has_target.sum() == num_targets, torch.nan)

    def _score(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.finish(self.head(hidden))

    @contextlib.contextmanager
    def _taking(self) -> Iterator[list[torch.Tensor]]:
        """Takes what enters the head, and lets one position through."""
        taken: list[torch.Tensor] = []

        def take(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            taken.append(args[0])
            return (args[0][:, :1].detach(), *args[1:])

        handle = self.head.register_forward_pre_hook(take)
        try:
            yield taken
        finally:
            handle.remove()


def _places(wanted: torch.Tensor, number: int | None) -> torch.Tensor:
    """The places of the True elements of (positions,), in order. With their `number` without asking the device."""
    if number is None:
        return wanted.nonzero().squeeze(1)
    return wanted.to(torch.uint8).argsort(descending=True, stable=True)[:number]


def summed_cross_entropy(
    hidden: torch.Tensor, targets: torch.Tensor, score: Score, head: nn.Module, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Cross-entropy summed over positions, in chunks.

    Args:
        hidden: (positions, hidden).
        targets: (positions,), int64.
        score: makes the logits; all weights it uses are those of `head`.
    """
    # torch tells a function that a weight needs a gradient also where none is computed, as in an evaluation
    weights = [weight for weight in head.parameters() if weight.requires_grad and torch.is_grad_enabled()]
    vocabulary = getattr(head, "out_features", None) or max(w.shape[0] for w in head.parameters())
    chunk = max(1, CHUNK_ELEMENTS // vocabulary)
    total: torch.Tensor = _InChunks.apply(hidden, targets, score, chunk, label_smoothing, *weights)  # type: ignore[no-untyped-call]
    return total


class _InChunks(torch.autograd.Function):
    """Loss and gradient chunk by chunk, both in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        targets: torch.Tensor,
        score: Score,
        chunk: int,
        label_smoothing: float,
        *weights: torch.Tensor,
    ) -> torch.Tensor:
        total = torch.zeros((), device=hidden.device, dtype=torch.float32)
        wanted = any(ctx.needs_input_grad)
        grad_hidden = torch.empty_like(hidden) if wanted else None
        grads: list[torch.Tensor | None] = [None] * len(weights)
        for start in range(0, len(targets), chunk):
            part = slice(start, start + chunk)
            with torch.set_grad_enabled(wanted):
                rows = hidden[part].detach().requires_grad_(wanted)
                loss = functional.cross_entropy(
                    score(rows).float(), targets[part], reduction="sum", label_smoothing=label_smoothing
                )
            total += loss.detach()
            if grad_hidden is not None:
                grad_hidden[part], *found = torch.autograd.grad(loss, [rows, *weights], allow_unused=True)
                grads = [_sum(one, other) for one, other in zip(grads, found, strict=True)]
        ctx.grads = (grad_hidden, *grads)
        return total

    @staticmethod
    def backward(ctx: Any, grad_total: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        grad_hidden, *grads = (None if grad is None else grad.mul_(grad_total) for grad in ctx.grads)
        ctx.grads = ()
        return (grad_hidden, None, None, None, None, *grads)


def _sum(one: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one.add_(other)


def selected_loss(
    model: Any, shifts_labels: bool, passes_use_cache: bool = False, label_smoothing: float = 0.0
) -> SelectedLoss | None:
    """The loss of a language model at selected positions, from what the model declares; None for other models.

    Args:
        model: without adapters' wrapping.
    """
    kind = type(model).__name__
    is_pair = bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
    if not (shifts_labels or kind.endswith("ForMaskedLM") or (is_pair and kind.endswith("ConditionalGeneration"))):
        return None
    get = getattr(model, "get_output_embeddings", None)
    output = get() if callable(get) else None
    head = next((child for child in model.children() if output is not None and _holds(child, output)), None)
    decoder_inputs = getattr(model, "prepare_decoder_input_ids_from_labels", None) if is_pair else None
    if head is None or (is_pair and decoder_inputs is None):
        return None
    return SelectedLoss(head, _finish(model.config), shifts_labels, decoder_inputs, passes_use_cache, label_smoothing)


def _holds(module: nn.Module, part: nn.Module) -> bool:
    return any(inner is part for inner in module.modules())


def _finish(config: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """What a model of this config does to its logits: Gemma caps them, Granite divides, Cohere multiplies."""
    cap = getattr(config, "final_logit_softcapping", None)
    divisor = getattr(config, "logits_scaling", None)
    factor = getattr(config, "logit_scale", None)

    def finish(logits: torch.Tensor) -> torch.Tensor:
        logits = logits / divisor if divisor else logits
        logits = logits * factor if isinstance(factor, float) else logits
        return torch.tanh(logits / cap) * cap if cap else logits

    return finish
