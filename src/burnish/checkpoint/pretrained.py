"""Models that write themselves (``save_pretrained``), kept from leaving marks on the live model."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from burnish.core import randomness, zero_parts
from burnish.core.divided import class_of

from . import files, tensors
from .bars import no_progress_bars
from .tensors import Tensors

logger = logging.getLogger(__name__)


def is_pretrained(model: nn.Module) -> bool:
    """Whether it is a model of transformers; by name, since a plain module must not cost that import."""
    return any(
        kind.__name__ == "PreTrainedModel" and kind.__module__.startswith("transformers.")
        for kind in type(model).__mro__
    )


def save(model: Any, folder: Path, state: Tensors) -> None:
    """``model.save_pretrained(folder)`` with the given tensors, without a progress bar and without side effects."""
    kinds = {tensor.dtype for tensor in state.values() if tensor.is_floating_point()}
    with no_progress_bars(), _configs_as_they_were(model), _saveable_generation_config(model, folder):
        model.save_pretrained(folder, state_dict=state)  # empties the dict
    if len(kinds) == 1 and getattr(model, "dtype", None) not in kinds:
        say_type(folder / "config.json", kinds.pop())


def say_type(path: Path, dtype: torch.dtype) -> None:
    """The type of the weights that were written, in the config that was written, where the model computes in another
    one: ``from_pretrained`` would round them to it."""
    content = files.read_json(path) if path.is_file() else {}
    if "dtype" in content:
        files.replace_json(path, {**content, "dtype": str(dtype).removeprefix("torch.")})


def save_configs(model: Any, folder: Path) -> None:
    """What ``from_pretrained`` reads beside the weights, of a model whose weights are written in another way."""
    if not is_pretrained(model):
        return
    twin = copy.deepcopy(model.config)
    twin.architectures = [class_of(model).__name__]
    twin.save_pretrained(folder)
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.to_json_file(folder / "generation_config.json", use_diff=True)


def saves_as_usual(model: nn.Module) -> bool:
    """Whether it is transformers' own code that writes it."""
    return str(type(model).save_pretrained.__module__).startswith("transformers.")  # type: ignore[attr-defined]


def beside(model: Any) -> Any:
    """The same modules with configs of their own: what a save notes in those is not seen by the live model."""
    kind = class_of(model)
    twin = kind.__new__(kind)  # a copy of a divided model would be built anew
    vars(twin).update(vars(model))
    for name in ("config", "generation_config"):
        if name in vars(model):
            setattr(twin, name, copy.deepcopy(getattr(model, name)))
    return twin


def rebuilt(model: Any, folder: Path) -> Tensors | None:
    """The weights of a folder under the names that the model uses now; None where they do not fill it exactly.

    Some models are published under other names than they compute with (experts one by one rather than stacked), and
    only ``from_pretrained`` knows how one becomes the other. Costs a second copy of the model, in float32.
    """
    in_parts = zero_parts.lies_in_parts(model)
    with randomness.kept(), no_progress_bars(), contextlib.nullcontext() if in_parts else zero_parts.loaded_whole():
        twin, told = type(model).from_pretrained(
            folder,
            config=model.config,
            dtype=torch.float32,  # holds every smaller type exactly, and is cast back when copied
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    if any(told.get(kind) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")):
        return None
    return dict(twin.state_dict(keep_vars=True)) if in_parts else tensors.tensors_of(twin)


@contextlib.contextmanager
def _configs_as_they_were(model: nn.Module) -> Iterator[None]:
    """Undoes what a save notes in the configs of the live model (dtype, architecture, inference mode)."""
    configs = [getattr(model, "config", None), *(getattr(model, "peft_config", None) or {}).values()]
    before = [(vars(config), dict(vars(config))) for config in configs if hasattr(config, "__dict__")]
    try:
        yield
    finally:
        for attributes, values in before:
            attributes.clear()
            attributes.update(values)


@contextlib.contextmanager
def _saveable_generation_config(model: Any, folder: Path) -> Iterator[None]:
    """Lets a model be saved whose generation settings contradict each other: they are written as they are."""
    config: Any = getattr(model, "generation_config", None)
    problem = _problem_of(config) if "generation_config" in vars(model) else None
    if problem is None:
        yield
        return
    logger.warning("The generation config is saved as it is, though it contradicts itself: %s", problem)
    model.generation_config = type(config)()
    try:
        yield
    finally:
        model.generation_config = config
    config.to_json_file(folder / "generation_config.json", use_diff=True)


def _problem_of(generation_config: Any) -> str | None:
    if generation_config is None:
        return None
    try:
        generation_config.validate(strict=True)
    except ValueError as error:
        return " ".join(str(error).split())
    return None
