"""Optimizers by name."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from burnish.core.errors import SettingError, did_you_mean

from .catalogue import NOT_YET, OPTIMIZERS, Entry
from .groups import parameter_groups
from .options import checked_options, options_of, parse_options

logger = logging.getLogger(__name__)

_NOT_OPTIONS = ("params", "lr", "weight_decay", "betas", "args", "differentiable", "warmup_steps")
"""Arguments of optimizer classes that the run sets, or that have no use here."""


def build_optimizer(
    name: str,
    model: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    optim_args: str | Mapping[str, Any] | None = None,
    warmup_steps: int = 0,
    decaying: Iterable[str] | None = None,
) -> Optimizer:
    """The optimizer `name` over the trainable parameters of `model`, in the groups of `parameter_groups`.

    Raises `SettingError` where nothing is trainable, and for what `optimizer_class_and_kwargs` raises.
    """
    groups = parameter_groups(model, weight_decay, decaying)
    trainable = [parameter for group in groups for parameter in group["params"]]
    if not trainable:
        raise SettingError(
            f"No parameter of {type(model).__name__} is trainable: set requires_grad on what training should change."
        )
    optimizer_class, kwargs = optimizer_class_and_kwargs(
        name,
        learning_rate=learning_rate,
        betas=betas,
        eps=eps,
        optim_args=optim_args,
        weight_decay=weight_decay,
        warmup_steps=warmup_steps,
        parameters=trainable,
    )
    optimizer = optimizer_class(groups, **kwargs)
    if kwargs.get("optim_bits") == 8:
        keep_embeddings_in_32_bits(model)
    return optimizer


def optimizer_class_and_kwargs(
    name: str,
    *,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    optim_args: str | Mapping[str, Any] | None = None,
    weight_decay: float = 0.0,
    warmup_steps: int = 0,
    parameters: Iterable[torch.Tensor] = (),
) -> tuple[type[Optimizer], dict[str, Any]]:
    """The class of the optimizer `name` and its arguments, parameters left out.

    Args:
        name: a name of transformers' `OptimizerNames`.
        betas: decay rates of the moments, for the optimizers of the Adam and Lion families.
        eps: the term that keeps Adam's denominator from 0.
        optim_args: further options of the optimizer, as ``"momentum=0.9,nesterov=True"``, JSON or a mapping.
        weight_decay: for the schedule-free family; others take it from their groups.
        warmup_steps: for the schedule-free family, which warms up by itself.
        parameters: what will be trained. Fused AdamW gives way to the plain one where it cannot train them.

    Raises:
        SettingError: the optimizer is unknown, not built yet, or its package is missing; or an option is unknown or of
            the wrong kind.
    """
    name = str(getattr(name, "value", name))
    entry = _entry(name)
    optimizer_class = _class_of(entry, name)
    run = {"betas": (*betas, *entry.more_betas), "eps": eps, "weight_decay": weight_decay, "warmup_steps": warmup_steps}
    kwargs = {"lr": learning_rate, **{setting: run[setting] for setting in entry.takes}, **entry.usual, **entry.fixed}
    kwargs.update(_options(name, entry, optimizer_class, kwargs.get("betas", ()), optim_args))
    if name == "adamw_torch_fused" and not _fused_works(parameters):
        del kwargs["fused"]
    return optimizer_class, kwargs


def set_training(optimizer: Optimizer, training: bool) -> None:
    """Tells a schedule-free optimizer that the weights are to be trained, or used. Others have no such modes.

    Such an optimizer keeps weights for training other than those to evaluate and to save: it must hear of each change.
    """
    switch = getattr(optimizer, "train" if training else "eval", None)
    if callable(switch):
        switch()


def keep_embeddings_in_32_bits(model: nn.Module) -> None:
    """Has bitsandbytes keep 32-bit states for embeddings, whose rare and large updates 8 bits do not hold.

    See Dettmers et al. 2021 (arXiv 2110.02861), section 2.3. Called before the first update.
    """
    from bitsandbytes.optim import GlobalOptimManager

    manager = GlobalOptimManager.get_instance()
    for part in model.modules():
        if isinstance(part, nn.Embedding):
            manager.register_module_override(part, "weight", {"optim_bits": 32})


def _entry(name: str) -> Entry:
    if name in OPTIMIZERS:
        return OPTIMIZERS[name]
    if name in NOT_YET:
        near = " or ".join(repr(other) for other in NOT_YET[name])
        raise SettingError(f"The optimizer {name!r} is not available in burnish yet. Near to it: {near}.")
    raise SettingError(
        f"The optimizer {name!r} is unknown. Known are: {', '.join(OPTIMIZERS)}.{did_you_mean(name, OPTIMIZERS)}"
    )


def _class_of(entry: Entry, name: str) -> type[Optimizer]:
    if importlib.util.find_spec(entry.package) is None:
        raise SettingError(
            f"The optimizer {name!r} needs the package {entry.package}: pip install {entry.package}, or choose another."
        )
    optimizer_class: type[Optimizer] = getattr(importlib.import_module(entry.module), entry.class_name)
    return optimizer_class


def _options(
    name: str,
    entry: Entry,
    optimizer_class: type[Optimizer],
    betas: tuple[float, ...],
    optim_args: str | Mapping[str, Any] | None,
) -> dict[str, Any]:
    """`optim_args` as arguments of the class. Its betas are written as beta1, beta2 and beta3."""
    numbered = {f"beta{place}": beta for place, beta in enumerate(betas, start=1)}
    taken = {**options_of(optimizer_class, without=(*_NOT_OPTIONS, *entry.fixed)), **numbered}
    given = parse_options(optim_args, "optim_args")
    if "weight_decay" in given:
        raise SettingError("weight_decay in optim_args would change nothing: set the argument weight_decay instead.")
    given = checked_options(given, taken, "optim_args", f"the optimizer {name!r}")
    if numbered.keys() & given.keys():
        given["betas"] = tuple(given.pop(beta, default) for beta, default in numbered.items())
    return given


def _fused_works(parameters: Iterable[torch.Tensor]) -> bool:
    """Whether fused AdamW trains each kind of these parameters. Where it does not, that is logged."""
    kinds = {(parameter.device, parameter.dtype) for parameter in parameters}
    failures = [failure for device, dtype in kinds if (failure := _failure_of_fused(device, dtype))]
    for failure in failures:
        logger.warning("%s; plain AdamW is used instead.", failure)
    return not failures


def _failure_of_fused(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why fused AdamW cannot train parameters of this kind: tried on one number, as torch lists it nowhere."""
    try:
        probe = torch.zeros(1, device=device, dtype=dtype, requires_grad=True)
        probe.grad = torch.zeros_like(probe)
        AdamW([probe], fused=True).step()
    except RuntimeError as error:
        return f"Fused AdamW cannot train {dtype} parameters on {device} ({error})"
    return None
