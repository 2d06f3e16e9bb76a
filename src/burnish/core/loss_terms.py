"""Named terms beside a loss: what a loss function or a model returned of them, and what they come to over a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .errors import SettingError

TAKEN = ("grad_norm", "learning_rate", "epoch", "step", "runtime", "num_input_tokens_seen")
"""Names that a log has for other numbers."""

TermSums = dict[str, tuple[torch.Tensor, torch.Tensor]]
"""By name: the sum of the term, and of the shares of steps that it was computed in; 0-dimensional, on the device."""


@dataclass
class LossTerms:
    """The terms of a trainer's loss, on the device.

    `found` are those of the batch that was computed last; `add` puts them to those of the step.
    """

    found: dict[str, torch.Tensor] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    """All that have ever been found."""
    divided: set[str] = field(default_factory=set)
    """Those that are sums over the number of targets that the loss function was told, as a loss may be."""
    _step: TermSums = field(default_factory=dict)

    def note(self, terms: Mapping[str, torch.Tensor]) -> None:
        """Takes down terms of the batch that is being computed."""
        self.found |= {name: value.detach() for name, value in terms.items()}
        self.names.update(terms)

    def forget(self) -> None:
        """Before a batch is computed."""
        self.found = {}

    def clear(self) -> None:
        """Before a step is computed, or computed again."""
        self.found, self._step = {}, {}

    def add(self, share: float) -> None:
        """The batch counts for this share of the targets of its step. A term that is not finite is left out."""
        for name, value in self.found.items():
            value = value.float()
            finite = torch.isfinite(value)
            part = torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0) * (1.0 if name in self.divided else share)
            before = self._step.get(name)
            now = (part, finite * share)
            self._step[name] = now if before is None else (before[0] + now[0], before[1] + now[1])
        self.found = {}

    def of_step(self) -> TermSums:
        """What this process has found in the step."""
        found, self._step = self._step, {}
        return found


def take_apart(returned: Any) -> tuple[Any, Any, dict[str, torch.Tensor]]:
    """Loss, outputs and named terms in what a loss function returned.

    It may be the loss; a dict with "loss" and further numbers; (loss, outputs); (loss, terms) or (loss, outputs,
    terms) with terms as a dict of 0-dimensional tensors. In place of the loss in a tuple may stand a dict as above.
    Outputs are None where there are none.
    """
    if isinstance(returned, Mapping):
        return returned.get("loss"), returned, terms_in(returned)
    if not isinstance(returned, (tuple, list)) or not returned:
        return returned, None, {}
    loss, _, terms = take_apart(returned[0])
    outputs = returned[1] if len(returned) > 1 else None
    if len(returned) == 2 and _are_terms(outputs):
        return loss, None, {**terms, **terms_in(outputs)}
    if len(returned) > 2 and _are_terms(returned[-1]):
        terms = {**terms, **terms_in(returned[-1])}
    return loss, outputs, terms


def terms_in(outputs: Any) -> dict[str, torch.Tensor]:
    """The 0-dimensional floating-point tensors in what a model or a loss function returned by name, but its `loss`;
    those of a dict inside that is called `loss_dict`, too. What is returned without names has none.

    Raises:
        SettingError: one is called as a number that every log has.
    """
    fields = _named(outputs)
    inner = fields.get("loss_dict")
    if isinstance(inner, Mapping):
        fields = {**inner, **fields}
    found = {str(name): _tensor(value) for name, value in fields.items() if name != "loss" and _is_term(value)}
    taken = sorted(found.keys() & set(TAKEN))
    if taken:
        raise SettingError(f"A term of the loss is called {taken[0]!r}, as a number in every log is. Rename it.")
    return found


def _are_terms(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(map(_is_term, value.values()))


def _is_term(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dim() == 0 and value.is_floating_point()
    return isinstance(value, float)


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.tensor(value)


def _named(outputs: Any) -> dict[str, Any]:
    if isinstance(outputs, Mapping):
        return dict(outputs)
    if hasattr(outputs, "_asdict"):
        return dict(outputs._asdict())
    if dataclasses.is_dataclass(outputs) and not isinstance(outputs, type):
        return {one.name: getattr(outputs, one.name) for one in dataclasses.fields(outputs)}
    return {}
