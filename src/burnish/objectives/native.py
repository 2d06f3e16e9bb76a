"""The loss that a model returns by itself, or computes with smoothed labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from burnish.core.errors import SettingError, UserError
from burnish.core.types import IGNORED_LABEL, Inputs

from .spans import TARGETS, span_loss


@dataclass(frozen=True)
class NativeLoss:
    """Calls a model and takes its loss: a mean over rows or over targets, as the model defines it.

    Args:
        passes_use_cache: `forward` names `use_cache`; it is switched off for the call, since a cache of keys and
            values is memory without use when a whole row is there. The model's config is not touched.
        shifts_labels: position i predicts label i + 1 (for smoothed labels).
        label_smoothing: share of the target that is spread evenly over all classes (Szegedy et al., 2016).
    """

    passes_use_cache: bool = False
    shifts_labels: bool = False
    label_smoothing: float = 0.0

    def __call__(self, model: nn.Module, inputs: Inputs) -> tuple[torch.Tensor, Any]:
        """The mean loss of a batch (0-dimensional) and all that the model returned.

        Raises:
            UserError: the model returned no loss.
        """
        outputs = self.forward(model, inputs)
        labels = inputs.get("labels")
        if self.label_smoothing and isinstance(labels, torch.Tensor):
            return self.smoothed(outputs, labels), outputs
        spans = span_loss(outputs, inputs) if TARGETS[0] in inputs else None
        return (loss_in(outputs, inputs) if spans is None else spans), outputs

    def forward(self, model: nn.Module, inputs: Inputs) -> Any:
        """All that the model returns."""
        if not isinstance(inputs, Mapping):
            raise UserError(
                f"The data collator returned a {type(inputs).__name__}; the model is called with keyword arguments. "
                "Return a dict such as {'input_ids': ..., 'labels': ...}, or override `compute_loss`."
            )
        if self.passes_use_cache and "use_cache" not in inputs:
            return model(**inputs, use_cache=False)
        return model(**inputs)

    def smoothed(self, outputs: Any, labels: torch.Tensor) -> torch.Tensor:
        """Cross-entropy of (…, classes) logits with smoothed whole-number labels, a mean over targets."""
        logits = _field(outputs, "logits")
        if logits is None or labels.is_floating_point():
            raise SettingError(
                "label_smoothing_factor needs a model that returns `logits` and labels that are class numbers; set "
                "label_smoothing_factor=0."
            )
        if self.shifts_labels:
            logits, labels = logits[..., :-1, :], labels[..., 1:]
        return functional.cross_entropy(
            logits.flatten(0, -2).float(),
            labels.flatten(),
            ignore_index=IGNORED_LABEL,
            label_smoothing=self.label_smoothing,
        )


def loss_in(outputs: Any, inputs: Inputs | None = None) -> torch.Tensor:
    """The loss in what a model returned: under the key or field `loss`, the first of a tuple, or the value itself.

    Raises:
        UserError: there is none. A tensor without a name is a loss where it is one number; others may be logits.
    """
    loss = _field(outputs, "loss")
    named = loss is not None
    if not named and isinstance(outputs, (tuple, list)) and outputs:
        loss = outputs[0]
    if not named and isinstance(outputs, torch.Tensor):
        loss = outputs
    if isinstance(loss, (int, float)):
        raise UserError(
            f"The model returned the number {loss} as its loss. It must be a tensor, as it was computed: item() and "
            "float() leave no gradient."
        )
    if not isinstance(loss, torch.Tensor) or not (named or loss.numel() == 1):
        raise UserError(
            f"The model returned no loss, only {_names(outputs)}. It was given {sorted(inputs or {})}. Give it its "
            "labels (the usual name is `labels`), or say how the loss is computed with `compute_loss_func`."
        )
    # a loss for each row, or one a device, is a mean of them
    return loss if loss.dim() == 0 else loss.mean()


def _field(outputs: Any, name: str) -> Any:
    if isinstance(outputs, Mapping):
        return outputs.get(name)
    if isinstance(outputs, (tuple, list, torch.Tensor)):
        return getattr(outputs, name, None)  # a NamedTuple has fields
    return getattr(outputs, name, None)


def _names(outputs: Any) -> str:
    if isinstance(outputs, Mapping):
        return str(sorted(outputs))
    if dataclasses.is_dataclass(outputs):
        return str([f.name for f in dataclasses.fields(outputs)])
    if isinstance(outputs, (tuple, list)) and outputs:
        return f"a {type(outputs).__name__} that begins with {_names(outputs[0])}"
    return f"a tensor of shape {tuple(outputs.shape)}" if isinstance(outputs, torch.Tensor) else type(outputs).__name__
