"""A snapshot in the host's memory: what it holds stays as it was while the training goes on."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any

import torch

from . import adapters, pretrained, store, tensors, weights
from .store import Snapshot

_Kind = tuple[Any, ...]

WORTH_A_COPY = 16 * 2**20
"""Bytes of tensors from which on a checkpoint is written behind the training. A smaller one is written in some tenths
of a second; the training waits for it, so that it stands whatever happens in the next steps, however short they are."""


class HostMemory:
    """Copies of tensors on the CPU, in memory that is kept from one time to the next: the system takes three times as
    long to hand out new memory as it takes to copy into it."""

    def __init__(self) -> None:
        self._kept: dict[_Kind, list[torch.Tensor]] = {}

    def copied(self, content: Any) -> Any:
        """The same nesting of dicts, lists and tuples with copies of its tensors. Those that share memory share it in
        the copy. Copies that were made before are overwritten: one time's must be done with before the next."""
        free, self._kept = self._kept, {}
        return self._copied(content, free, {})

    def _copied(self, content: Any, free: dict[_Kind, list[torch.Tensor]], made: dict[Any, torch.Tensor]) -> Any:
        if isinstance(content, torch.Tensor):
            place = _place(content)
            if place not in made:
                made[place] = self._copy(content.detach(), free)
            return made[place]
        if isinstance(content, dict):
            return {key: self._copied(value, free, made) for key, value in content.items()}
        if type(content) in (list, tuple):
            return type(content)(self._copied(value, free, made) for value in content)
        return content

    def _copy(self, tensor: torch.Tensor, free: dict[_Kind, list[torch.Tensor]]) -> torch.Tensor:
        if type(tensor) is not torch.Tensor or tensor.layout != torch.strided:
            return tensor.to("cpu", copy=True)
        kind = (tensor.dtype, tuple(tensor.shape), tensor.stride())
        fitting = free.get(kind)
        target = fitting.pop() if fitting else torch.empty_like(tensor, device="cpu")
        self._kept.setdefault(kind, []).append(target)
        return target.copy_(tensor)


def _place(tensor: torch.Tensor) -> Any:
    """Equal for tensors that are one and the same; a tensor that does not say where it lies is only itself."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return tensors.same_memory(tensor) if plain and tensor.numel() else id(tensor)


@dataclass(frozen=True)
class HeldState:
    """Stands for an optimizer, a scheduler or a scaler, with the state that it had."""

    class_name: str
    content: Any

    def state_dict(self) -> Any:
        return self.content


class HeldFiles:
    """What something writes into a folder, kept in memory to be written again."""

    def __init__(self, write: Callable[[Path], object]) -> None:
        with tempfile.TemporaryDirectory(prefix="burnish-") as name:
            folder = Path(name)
            write(folder)
            found = [path for path in folder.rglob("*") if path.is_file()]
            self.content = {path.relative_to(folder): path.read_bytes() for path in found}

    def save_pretrained(self, folder: Path) -> None:
        for name, content in self.content.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def can_be_held(snapshot: Snapshot) -> bool:
    """Whether a copy of the weights is all that writing the model takes: not where a user's own code writes it, nor
    for weights that are quantised or lie elsewhere than in the model."""
    model = tensors.unwrapped(snapshot.model)
    if snapshot.write_model is not None or getattr(model, "hf_quantizer", None) is not None:
        return False
    if snapshot.model_written:
        return True
    if {"cpu", "disk"} & {str(place) for place in (getattr(model, "hf_device_map", None) or {}).values()}:
        return False
    return not pretrained.is_pretrained(model) or pretrained.saves_as_usual(model)


def is_worth_it(snapshot: Snapshot) -> bool:
    """Whether writing takes so long that the training should not wait for it."""
    return store.bytes_of(snapshot) >= WORTH_A_COPY


def held(snapshot: Snapshot, memory: HostMemory) -> Snapshot:
    """A snapshot that can be written while model, optimizer and progress change. Takes as much memory as the checkpoint
    takes on the disk; weights and states that are copies already are not copied again.

    What writes itself by code that is not made for a second thread (adapters, tokenizers) is written here and now, into
    memory; both are small.
    """
    model = tensors.unwrapped(snapshot.model)
    content: dict[str, Any] = {}
    changes: dict[str, Any] = {}
    if snapshot.model_written:
        pass  # nothing is left to write of it
    elif adapters.names(model):
        changes["write_model"] = HeldFiles(lambda folder: _write_adapters(snapshot, folder)).save_pretrained
    else:
        if snapshot.weights is None:
            content["weights"] = tensors.tensors_of(model)
        if pretrained.is_pretrained(model):
            model = pretrained.beside(model)
        tokenizer = HeldFiles(lambda folder: store.save_processing_class(snapshot.processing_class, folder))
        changes["processing_class"] = tokenizer
    parts = ("optimizer", "scheduler", "scaler") if not snapshot.only_model else ()
    named = {name: part for name in parts if not isinstance(part := getattr(snapshot, name), (HeldState, NoneType))}
    content |= {name: part.state_dict() for name, part in named.items()}
    content = memory.copied(content)
    changes |= {name: HeldState(type(part).__name__, content[name]) for name, part in named.items()}
    return replace(
        snapshot,
        model=model,
        state=_held_progress(snapshot.state),
        weights=content.get("weights", snapshot.weights),
        random_states=store.random_states(store.world_size(snapshot)),
        **changes,
    )


def _write_adapters(snapshot: Snapshot, folder: Path) -> None:
    weights.save_weights(snapshot.model, folder, state=snapshot.weights)
    store.save_processing_class(snapshot.processing_class, folder)


def _held_progress(state: Any) -> Any:
    """A copy. Entries of the history are not changed once they are there, only added."""
    held = copy.copy(state)
    held.log_history = list(state.log_history)
    held.stateful_callbacks = copy.deepcopy(state.stateful_callbacks)
    return held
