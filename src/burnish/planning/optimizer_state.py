"""Bytes that optimizers keep, by the names of the catalogue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from burnish.core.errors import SettingError, did_you_mean
from burnish.optim.catalogue import OPTIMIZERS

from .weights import Weight

SMALLEST_QUANTISED = 4096
"""Tensors with fewer elements keep their state in 32 bits, in bitsandbytes as in torchao."""
BLOCK = 256
"""Elements that share one 4-byte scale in a state of 8 or 4 bits."""


@dataclass(frozen=True)
class State:
    """What an optimizer keeps for each element of a trained tensor.

    Args:
        numbers: running means and the like.
        bits: of each number; None for the type of the weight.
        factored: matrices keep a row and a column of second moments in place of all (Shazeer and Stern, 2018).
        with_momentum: one number more where momentum is set.
    """

    numbers: int
    bits: int | None = None
    factored: bool = False
    with_momentum: bool = False


def _state(name: str) -> State:
    """From the class that a name stands for, and the bits that the name fixes."""
    entry = OPTIMIZERS[name]
    numbers = {"AdEMAMix": 3, "Lion": 1, "SGD": 0, "Adagrad": 1, "RMSprop": 1, "SGDScheduleFree": 1}
    bits = entry.fixed.get("optim_bits")
    if entry.package == "torchao":
        bits = 4 if "4bit" in entry.class_name else 8
    return State(
        numbers=numbers.get(entry.class_name, 2),
        bits=bits,
        factored=entry.class_name == "Adafactor",
        with_momentum=entry.class_name in ("SGD", "RMSprop") and bits is None,
    )


def optimizer_bytes(name: str, weights: Iterable[Weight], momentum: float = 0.0) -> int:
    """Bytes of the state of the optimizer `name` after its first step, for the trained of these weights.

    Raises:
        SettingError: there is no such optimizer.
    """
    return sum(state_blocks(name, weights, momentum))


def state_blocks(name: str, weights: Iterable[Weight], momentum: float = 0.0) -> list[int]:
    """Bytes of each tensor of that state, in the order of the weights.

    Raises:
        SettingError: there is no such optimizer.
    """
    if name not in OPTIMIZERS:
        raise SettingError(f"The optimizer {name!r} is not known.{did_you_mean(name, OPTIMIZERS)}")
    state = _state(name)
    numbers = state.numbers + (1 if state.with_momentum and momentum else 0)
    return [round(size) for weight in weights if weight.trained for size in _sizes(state, numbers, weight)]


def _sizes(state: State, numbers: int, weight: Weight) -> list[float]:
    """Bytes of each tensor that is kept for one weight."""
    if state.factored and len(weight.shape) >= 2:
        matrices = weight.elements / (weight.shape[-2] * weight.shape[-1])
        return [matrices * side * 4 for side in weight.shape[-2:]]
    if state.factored:
        return [weight.elements * 4]
    if state.bits is None:
        return numbers * [weight.elements * weight.bytes_each]
    if state.bits == 32 or weight.elements < SMALLEST_QUANTISED or weight.is_table:
        return numbers * [weight.elements * 4.0]
    return numbers * [weight.elements * state.bits / 8, weight.elements / BLOCK * 4]
