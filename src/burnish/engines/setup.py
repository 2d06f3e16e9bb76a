"""Making a model ready for training, and undoing it afterwards."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from burnish.core.errors import SettingError

logger = logging.getLogger(__name__)


def compiled(model: nn.Module, backend: str | None, mode: str | None) -> nn.Module:
    """The model compiled by `torch.compile`; it shares its weights with the one given.

    Raises:
        SettingError: torch knows no such backend or mode.
    """
    options: dict[str, Any] = {"backend": backend or "inductor"}
    if mode is not None:
        options["mode"] = mode
    try:
        wrapped = torch.compile(model, **options)
    except (RuntimeError, ValueError) as error:
        raise SettingError(
            f"torch_compile_backend={backend!r}, torch_compile_mode={mode!r}: {str(error).splitlines()[0]}"
        ) from error
    assert isinstance(wrapped, nn.Module)
    return wrapped


@contextlib.contextmanager
def gradient_checkpointing(model: nn.Module, enabled: bool, options: dict[str, Any] | None) -> Iterator[None]:
    """Recomputes activations in the backward pass (Chen et al., 2016) inside the context.

    With frozen input embeddings (adapters), their output is made to require a gradient, since the reentrant kind
    would otherwise cut the graph. Both are undone at the end.

    Args:
        options: for `torch.utils.checkpoint.checkpoint`; or for the model itself, `every_n_layers` (recompute only each
            n-th layer) and `offload` (keep what is needed for it in the host's memory).

    Raises:
        SettingError: the model cannot do it, or not in this way.
    """
    if not enabled:
        yield
        return
    enable = _method(model, "checkpointing_enable")
    if enable is None:
        raise SettingError(
            f"gradient_checkpointing is set, but {type(model).__name__} has no `gradient_checkpointing_enable`. Leave "
            "the setting out, or give the model that method."
        )
    was_enabled = _recomputes(model)
    of_checkpoint = {"use_reentrant": False, **(options or {})}
    enable(of_checkpoint, **_taken_out(of_checkpoint, enable, model))
    with _inputs_requiring_gradients(model):
        try:
            yield
        finally:
            disable = _method(model, "checkpointing_disable")
            if disable is not None and not was_enabled:
                disable()
            # transformers makes the embeddings' output require a gradient, and leaves it so
            forget = getattr(model, "disable_input_require_grads", None)
            if forget is not None:
                forget()


def _taken_out(options: dict[str, Any], enable: Any, model: nn.Module) -> dict[str, Any]:
    """Takes what is for the model out of the options. Raises `SettingError` for what it does not know or cannot be."""
    found: dict[str, Any] = {
        option: options.pop(option) for option in ("every_n_layers", "offload") if option in options
    }
    known = inspect.signature(enable).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in known.values())
    for option in found:
        if option not in known and not takes_any:
            kind = type(model).__name__
            raise SettingError(f"gradient_checkpointing_kwargs: {kind} does not know {option!r}. Leave it out.")
    every = found.get("every_n_layers", 1)
    if not isinstance(every, int) or every < 1:
        raise SettingError(f"gradient_checkpointing_kwargs: 'every_n_layers' = {every!r}; it must be 1 or more.")
    if found.get("offload") and all(weight.device.type == "cpu" for weight in model.parameters()):
        logger.warning("gradient_checkpointing_kwargs: 'offload' has no effect on the CPU, whose memory is the host's.")
        del found["offload"]
    return found


def _method(model: nn.Module, name: str) -> Any:
    """A model's method by its newer name, or by the older one that warns where the newer is there."""
    return getattr(model, f"activation_{name}", None) or getattr(model, f"gradient_{name}", None)


def _recomputes(model: nn.Module) -> bool:
    newer = getattr(model, "is_activation_checkpointing", None)
    return bool(getattr(model, "is_gradient_checkpointing", False) if newer is None else newer)


@contextlib.contextmanager
def _inputs_requiring_gradients(model: nn.Module) -> Iterator[None]:
    get = getattr(model, "get_input_embeddings", None)
    embeddings = get() if callable(get) else None
    if not isinstance(embeddings, nn.Module) or any(p.requires_grad for p in embeddings.parameters()):
        yield
        return
    handle = embeddings.register_forward_hook(lambda module, args, output: output.requires_grad_(True))
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def tf32(enabled: bool | None) -> Iterator[None]:
    """TF32 matrix multiplication on Ampere and newer GPUs inside the context; None leaves the global as it is."""
    if enabled is None:
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = enabled
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextlib.contextmanager
def determinism(enabled: bool) -> Iterator[None]:
    """Deterministic kernels where torch has them; an operation without one warns."""
    if not enabled:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
