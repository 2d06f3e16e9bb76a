"""The configuration of DeepSpeed and the settings of the run: one fills the other, and they do not contradict."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from burnish.core import zero_settings
from burnish.core.errors import SettingError
from burnish.core.zero_settings import value_at

AUTO = "auto"


@dataclass(frozen=True)
class Fact:
    """One setting that both sides know."""

    path: str
    """In the configuration, such as ``optimizer.params.lr``."""
    argument: str
    """Name of the training argument, or what it is made of."""
    value: Any
    added: bool = True
    """Whether it is put into a configuration that does not have it; only where its section is there."""


def filled(given: Any, args: Any, processes: int, on_cpu: bool) -> dict[str, Any]:
    """The configuration with everything that the arguments know. What is known only once the model and the number of
    steps are, stays "auto" (see `completed`).

    What the configuration does not say is as the arguments say, clipping and precision among them.

    Raises:
        SettingError: the two contradict each other (a table of all such settings), or the configuration asks for
            something that burnish does not drive.
    """
    config = zero_settings.read(given)
    facts = [*_of_the_step(args, processes), *_of_precision(config, args), *_of_optimizer(config, args)]
    _agree(config, facts)
    stage = config.setdefault("zero_optimization", {}).setdefault("stage", 0)
    if stage == 0 and half_precision(config) == "fp16":
        raise SettingError(
            "fp16 at stage 0 of ZeRO: DeepSpeed takes a loss scale out of the gradients that it never put into the "
            "loss, which makes them thousands of times too small. Set zero_optimization.stage to 1, or bf16."
        )
    if "optimizer" not in config:
        config.setdefault("zero_force_ds_cpu_optimizer", False)  # the optimizer of the arguments is the one that runs
    elif on_cpu and not offloads(config, "optimizer"):
        _without_a_build(config["optimizer"])
    return config


def refuse_two(config: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises `SettingError` for an optimizer or a scheduler of the user's own beside one in the configuration.

    Args:
        given: by the name of the section; None where the user gave none.
    """
    for section, own in given.items():
        if own is not None and section in config:
            raise SettingError(
                f"The trainer was given its own {section}, and the configuration of DeepSpeed has one, too "
                f"({config[section]['type']}). Leave one of the two out."
            )


def remarks(config: Mapping[str, Any], args: Any) -> Iterator[str]:
    """A sentence for each training argument that is set, and that the configuration stands in for."""
    for section, name in (("optimizer", "optim"), ("scheduler", "lr_scheduler_type")):
        value = getattr(args, name)
        if section in config and value != args.__dataclass_fields__[name].default:
            said, kind = getattr(value, "value", value), config[section]["type"]
            yield f"`{name}={said}` has no effect: the configuration of DeepSpeed has its own {section}, {kind}."


def completed(config: Mapping[str, Any], args: Any, num_steps: int, model_config: Any) -> dict[str, Any]:
    """The same configuration where the model and the number of steps are known: nothing is "auto" any more.

    Raises:
        SettingError: the schedule of the configuration contradicts the arguments, or an "auto" is left that nobody can
            fill.
    """
    whole: dict[str, Any] = copy.deepcopy(dict(config))
    _agree(whole, _of_schedule(whole, args, num_steps))
    hidden = hidden_size(model_config)
    zero = whole["zero_optimization"]
    sizes = {
        "reduce_bucket_size": hidden and hidden * hidden,
        "stage3_prefetch_bucket_size": hidden and int(0.9 * hidden * hidden),
        "stage3_param_persistence_threshold": hidden and 10 * hidden,
    }
    for name, size in sizes.items():
        if zero.get(name) == AUTO:
            zero.pop(name)  # DeepSpeed's default, for a model that does not say how wide it is
            zero.update({name: size} if size else {})
    if value_at(whole, "scheduler.params.warmup_num_steps") == 0:
        raise SettingError(
            "deepspeed: scheduler.params.warmup_num_steps is 0 (warmup_steps), and schedules of DeepSpeed begin with a "
            "warmup. Set warmup_steps to 1 or more, or leave the scheduler out: lr_scheduler_type then says it."
        )
    left = [path for path, value in _leaves(whole) if value == AUTO]
    if left:
        raise SettingError(
            f'deepspeed: nothing is known that could fill "auto" in {", ".join(left)}. Give numbers there, or leave '
            "these settings out."
        )
    return whole


def of_forward_passes(config: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """The configuration of a model that is not trained, and keeps the type of its weights."""
    rest = {name: section for name, section in config.items() if name not in ("optimizer", "scheduler")}
    return {**rest, "bf16": {"enabled": dtype == torch.bfloat16}, "fp16": {"enabled": dtype == torch.float16}}


def offloads(config: Mapping[str, Any], what: str) -> bool:
    """Whether the "optimizer" states or the "param"eters are kept away from the device."""
    section = config.get("zero_optimization", {}).get(f"offload_{what}") or {}
    return str(section.get("device", "none")) not in ("none", "None")


def keeps_16_bits(config: Mapping[str, Any]) -> bool:
    """Whether the configuration asks for the 16-bit weights in what is saved, in place of the full ones."""
    zero = config["zero_optimization"]
    names = ("stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save")
    return any(bool(zero.get(name)) for name in names)


def half_precision(config: Mapping[str, Any]) -> str:
    """ "bf16", "fp16" or "no": in which type DeepSpeed keeps the weights that it computes with."""
    return next((name for name in ("bf16", "fp16") if config.get(name, {}).get("enabled")), "no")


def dtype_of(config: Mapping[str, Any]) -> torch.dtype:
    """The type of the weights that are computed with."""
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(half_precision(config), torch.float32)


def hidden_size(model_config: Any) -> int | None:
    """How wide a model is; of several widths the largest; None where it does not say."""
    for config in (model_config, getattr(model_config, "text_config", None)):
        for name in ("hidden_size", "hidden_sizes", "d_model", "n_embd", "dim"):
            value = getattr(config, name, None)
            if isinstance(value, int):
                return value
            if isinstance(value, (list, tuple)) and value:
                return int(max(value))
    return None


def _of_the_step(args: Any, processes: int) -> Iterator[Fact]:
    micro, accumulation = args.per_device_train_batch_size, args.gradient_accumulation_steps
    yield Fact("train_micro_batch_size_per_gpu", "per_device_train_batch_size", micro)
    yield Fact("gradient_accumulation_steps", "gradient_accumulation_steps", accumulation)
    made_of = f"per_device_train_batch_size x gradient_accumulation_steps x {processes} processes"
    yield Fact("train_batch_size", made_of, micro * accumulation * processes)
    yield Fact("gradient_clipping", "max_grad_norm", max(0.0, float(args.max_grad_norm)))


def _of_precision(config: dict[str, Any], args: Any) -> Iterator[Fact]:
    for name in ("fp16", "bf16"):
        asked = bool(getattr(args, name))
        if asked:
            config.setdefault(name, {})
        if name in config:
            yield Fact(f"{name}.enabled", name, asked)


def _of_optimizer(config: Mapping[str, Any], args: Any) -> Iterator[Fact]:
    if "optimizer" not in config:
        return
    is_adam = "adam" in str(config["optimizer"].get("type", "")).lower()
    yield Fact("optimizer.params.lr", "learning_rate", args.learning_rate)
    yield Fact("optimizer.params.weight_decay", "weight_decay", args.weight_decay)
    betas = [args.adam_beta1, args.adam_beta2]
    yield Fact("optimizer.params.betas", "[adam_beta1, adam_beta2]", betas, added=is_adam)
    yield Fact("optimizer.params.eps", "adam_epsilon", args.adam_epsilon, added=is_adam)


def _of_schedule(config: Mapping[str, Any], args: Any, num_steps: int) -> Iterator[Fact]:
    if "scheduler" not in config:
        return
    kind = str(config["scheduler"].get("type", ""))
    rises = kind in ("WarmupLR", "WarmupDecayLR")
    yield Fact("scheduler.params.warmup_max_lr", "learning_rate", args.learning_rate, added=rises)
    warmup = args.get_warmup_steps(num_steps)
    yield Fact("scheduler.params.warmup_num_steps", "warmup_steps", warmup, added=kind.startswith("Warmup"))
    ends = kind in ("WarmupDecayLR", "WarmupCosineLR")
    yield Fact("scheduler.params.total_num_steps", "steps of the run", num_steps, added=ends)
    if value_at(config, "scheduler.params.warmup_min_lr") == AUTO:
        yield Fact("scheduler.params.warmup_min_lr", "0", 0.0)


def _agree(config: dict[str, Any], facts: Iterator[Fact] | list[Fact]) -> None:
    """Fills in what is "auto" or missing.

    Raises:
        SettingError: with every setting that has two values.
    """
    rows = []
    for fact in facts:
        value = value_at(config, fact.path)
        if value == AUTO or (value is None and fact.added):
            _put(config, fact.path, fact.value)
        elif value is not None and not _alike(value, fact.value):
            rows.append((fact.path, f"{fact.argument} = {_shown(fact.value)}", _shown(value)))
    if not rows:
        return
    table = _table([("setting of DeepSpeed", "training arguments", "configuration"), *rows])
    raise SettingError(
        f"The training arguments and the configuration of DeepSpeed contradict each other:\n{table}\n"
        'Give both the same value, or write "auto" in the configuration: the arguments then decide.'
    )


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(float(one), float(other), rel_tol=1e-9)
    return bool(one == other)


def _shown(value: Any) -> str:
    return json.dumps(value)


def _table(rows: list[tuple[str, str, str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = (" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"  {line.rstrip()}" for line in lines)


def _without_a_build(optimizer: dict[str, Any]) -> None:
    """On the CPU, Adam of torch in place of DeepSpeed's own, which is the same and would be compiled for minutes."""
    if str(optimizer.get("type", "")).lower() in ("adam", "adamw"):
        optimizer.setdefault("params", {}).setdefault("torch_adam", True)


def _put(config: dict[str, Any], path: str, value: Any) -> None:
    *sections, name = path.split(".")
    for section in sections:
        config[section] = config = config.get(section) or {}
    config[name] = value


def _leaves(content: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from _leaves(value, f"{path}.{name}".lstrip("."))
    else:
        yield path, content
