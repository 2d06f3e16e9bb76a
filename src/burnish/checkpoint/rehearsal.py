"""A save before the first step, which writes next to nothing: what could not be saved is found at once."""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from burnish.core.divided import division_of
from burnish.core.errors import CheckpointError
from burnish.core.zero_parts import lies_in_parts

from . import adapters, files, pretrained, staging, store, tensors, weights
from .store import Snapshot

logger = logging.getLogger(__name__)

WHOLE = 32 << 20
"""Bytes of weights up to which the model is written as it will be; of a larger one each part that may fail is tried."""
LASTING = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT, errno.ENAMETOOLONG)
"""What does not go away by itself."""
ADVICE = "Mend this before hours are spent, or set save_strategy='no' for a run without checkpoints."


def rehearse(output_dir: Path | str, snapshot: Snapshot) -> None:
    """Goes through all parts of a checkpoint in a staging folder, with small tensors in the place of large ones.

    A `save_model` of the user's own, and models that only their own code can write, are not tried.

    Raises:
        CheckpointError: it names each part that cannot be saved, why, and what to set.
    """
    output_dir = Path(output_dir)
    try:
        folder = staging.trial_folder(output_dir)
    except OSError as error:
        _refuse_or_mention(output_dir, error)
        return
    try:
        found = [f"{what}: {_told(error)}" for what, error in _failures(output_dir, folder, snapshot)]
        files.sync_tree(folder)
    except OSError as error:
        _refuse_or_mention(output_dir, error)
        return
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found:
        listed = "\n".join(f"  {line}" for line in found)
        raise CheckpointError(f"No checkpoint of this run could be written to {output_dir}:\n{listed}\n{ADVICE}")


def _failures(output_dir: Path, folder: Path, snapshot: Snapshot) -> Iterator[tuple[str, Exception]]:
    """Each part that fails, and how."""
    for what, attempt in _parts(output_dir, folder, snapshot):
        error = _failure_of(attempt)
        if error is not None:
            yield what, error


def _failure_of(attempt: Callable[[], object]) -> Exception | None:
    """What an attempt raised, but for an error of the disk that may not come again."""
    try:
        attempt()
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.EIO:
            raise
        return error
    return None


def _parts(output_dir: Path, folder: Path, snapshot: Snapshot) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "space", lambda: _check_space(output_dir, snapshot)
    if snapshot.write_model is None:
        yield "the model", lambda: _try_model(snapshot.model, folder)
        name = type(snapshot.processing_class).__name__
        yield f"processing_class ({name})", lambda: store.save_processing_class(snapshot.processing_class, folder)
    if not snapshot.only_model:
        for name, part in store.stateful_parts(snapshot):
            what = f"{Path(name).stem} ({type(part).__name__})"
            yield what, partial(_try_state, folder / name, part)
    for name, state in snapshot.state.stateful_callbacks.items():
        yield f"the state of {name}", partial(_check_is_json, state)
    yield "the settings", lambda: files.as_json(snapshot.settings)


def _check_space(output_dir: Path, snapshot: Snapshot) -> None:
    needed, free = store.bytes_needed(snapshot) + _moments(snapshot), shutil.disk_usage(output_dir).free
    if free < needed:
        raise CheckpointError(
            f"a checkpoint takes about {needed / 1e6:.0f} MB, and {free / 1e6:.0f} MB are free; make room, or set "
            "output_dir to another disk, or save_only_model=True for less"
        )


def _moments(snapshot: Snapshot) -> int:
    """Bytes that an optimizer of torch will keep from its first step on; 0 for others, of which nothing is known."""
    optimizer = snapshot.optimizer
    if snapshot.only_model or not isinstance(optimizer, Optimizer) or optimizer.state:
        return 0
    if not type(optimizer).__module__.startswith("torch.optim"):
        return 0
    moments = 2 if "betas" in optimizer.defaults else int(bool(optimizer.defaults.get("momentum")))
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return moments * sum(parameter.numel() * parameter.element_size() for parameter in parameters)


def _try_model(model: Any, folder: Path) -> None:
    model = tensors.unwrapped(model)
    if division_of(model) is not None or lies_in_parts(model):
        pretrained.save_configs(model, folder)
        return
    if pretrained.is_pretrained(model) and not pretrained.saves_as_usual(model):
        return
    if store.bytes_of_model(model) <= WHOLE:
        weights.save_weights(model, folder)
        return
    state = {} if adapters.names(model) else tensors.tensors_of(model)
    kinds = {tensor.dtype for tensor in state.values() if type(tensor) in (torch.Tensor, torch.nn.Parameter)}
    tensors.write({str(kind): torch.zeros(1, dtype=kind) for kind in kinds}, folder / "kinds.safetensors")
    twin = pretrained.beside(model)
    configs = [getattr(twin, "config", None), *(getattr(twin, "peft_config", None) or {}).values()]
    for config in configs:
        if callable(save := getattr(config, "save_pretrained", None)):
            save(folder)


def _try_state(path: Path, part: Any) -> None:
    files.save_tensors(path, _small(part.state_dict()))


def _small(content: Any) -> Any:
    """The same nesting with tensors of one element."""
    if isinstance(content, torch.Tensor):
        return torch.zeros(1, dtype=content.dtype) if type(content) is torch.Tensor else content
    if isinstance(content, dict):
        return {key: _small(value) for key, value in content.items()}
    if type(content) in (list, tuple):
        return type(content)(map(_small, content))
    return content


def _check_is_json(value: Any, where: str = "") -> None:
    """Raises for what would come back from JSON as something else, such as the text that describes an object."""
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise CheckpointError(f"{where or 'it'} has the key {key!r}, and JSON keeps keys that are text only")
            _check_is_json(part, f"{where}.{key}" if where else key)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for number, part in enumerate(value):
            _check_is_json(part, f"{where}[{number}]")
    elif not isinstance(value, (str, bool, int, float, type(None))) and not callable(getattr(value, "tolist", None)):
        raise CheckpointError(
            f"{where or 'it'} is a {type(value).__name__}, and only numbers, text, lists and dicts come back from a "
            "checkpoint; let its `state()` return those"
        )


def _refuse_or_mention(output_dir: Path, error: OSError) -> None:
    if error.errno in (*LASTING, errno.ENOSPC, errno.EDQUOT):
        raise CheckpointError(
            f"Nothing can be written to {output_dir}: {error}. Set output_dir to another folder, or save_strategy='no' "
            "for a run without checkpoints."
        ) from error
    logger.warning("A trial of saving in %s failed: %s. Training goes on; each save is tried anew.", output_dir, error)


def _told(error: Exception) -> str:
    kind = "" if isinstance(error, (CheckpointError, OSError)) else f"{type(error).__name__}: "
    return f"{kind}{error}"
