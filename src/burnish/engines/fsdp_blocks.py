"""Which parts of a model are gathered, computed and given back together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from torch import nn

from burnish.core.divided import base_of
from burnish.core.errors import SettingError

from .fsdp_settings import BY_SIZE, ROOT_ONLY, Sharding


def blocks_of(model: nn.Module, sharding: Sharding) -> list[nn.Module]:
    """The blocks of a model, inner ones first. What is in none of them (embeddings, output layer, the last norm) is
    gathered once a step. What shares a weight or a module with another part is no block, nor is what makes logits: a
    loss may call it by itself, piece by piece.

    Raises:
        SettingError: no module is of the classes that are named, or the model shows no blocks.
    """
    if sharding.wrapping == ROOT_ONLY:
        return []
    if sharding.wrapping == BY_SIZE:
        found = _by_size(model, sharding.min_num_params)
    else:
        names = set(sharding.block_classes or named_by_model(model))
        found = [module for module in _inner_first(model) if _name(module) in names]
        if sharding.block_classes:
            _refuse_unknown(model, sharding.block_classes)
        found = found or ([] if sharding.block_classes else repeated(model))
    apart = _output_layers(model)
    found = _without_shared(model, [block for block in found if block not in apart])
    if not found:
        raise SettingError(
            f"fsdp: {type(model).__name__} shows no blocks that could be gathered one by one. Name their class in "
            "fsdp_config={'transformer_layer_cls_to_wrap': ...}, or set 'auto_wrap_policy': 'NO_WRAP' to gather the "
            "model whole."
        )
    return found


def named_by_model(model: nn.Module) -> set[str]:
    """The classes that a model of transformers does not split between devices."""
    return {name for module in model.modules() for name in getattr(module, "_no_split_modules", None) or ()}


def repeated(model: nn.Module) -> list[nn.Module]:
    """The modules of the class that most often stands in a list of modules of one class, by number of parameters."""
    sizes: Counter[type] = Counter()
    lists = [part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) > 1]
    for part in lists:
        if len({type(block) for block in part}) == 1:
            sizes[type(part[0])] += sum(weight.numel() for weight in part.parameters())
    if not sizes:
        return []
    kind = sizes.most_common(1)[0][0]
    return [module for module in _inner_first(model) if type(module) is kind]


def _by_size(model: nn.Module, least: int) -> list[nn.Module]:
    """Modules with so many parameters that are in no smaller block."""
    found: list[nn.Module] = []
    taken: set[int] = set()
    for module in _inner_first(model):
        left = [weight for weight in module.parameters() if id(weight) not in taken]
        if sum(weight.numel() for weight in left) >= least and not isinstance(module, nn.ModuleList | nn.ModuleDict):
            found.append(module)
            taken.update(map(id, left))
    return found


def _without_shared(model: nn.Module, blocks: Iterable[nn.Module]) -> list[nn.Module]:
    uses = _uses(model)
    kept = []
    for block in blocks:
        own = _uses(block)
        if own and all(uses[weight] == times for weight, times in own.items()) and not _is_held_elsewhere(model, block):
            kept.append(block)
    return kept


def _is_held_elsewhere(model: nn.Module, block: nn.Module) -> bool:
    """Whether a module outside of the block holds a part of it too, and may call that by itself: adapters that learn a
    prompt hold the embeddings."""
    inside = set(block.modules())
    others = (module for module in model.modules() if module not in inside)
    return any(child in inside and child is not block for module in others for child in module.children())


def _output_layers(model: nn.Module) -> set[nn.Module]:
    base = base_of(model)
    find = getattr(base, "get_output_embeddings", None)
    output = find() if callable(find) else None
    if not isinstance(output, nn.Module):
        return set()
    holding = [set(child.modules()) for child in base.children()]
    part = next((modules for modules in holding if output in modules), {output})
    return {output} if any(isinstance(module, nn.ModuleList) for module in part) else part


def _uses(model: nn.Module) -> Counter[int]:
    """How many modules have each weight."""
    weights = (weight for module in model.modules() for weight in module._parameters.values())
    return Counter(id(weight) for weight in weights if weight is not None)


def _inner_first(model: nn.Module) -> list[nn.Module]:
    """All modules but the model itself."""
    return list(model.modules())[:0:-1]


def _name(module: nn.Module) -> str:
    return type(module).__name__


def _refuse_unknown(model: nn.Module, names: Iterable[str]) -> None:
    there = {_name(module) for module in model.modules()}
    for name in names:
        if name not in there:
            known = sorted(one for one in there if one.endswith(("Layer", "Block"))) or sorted(there)
            raise SettingError(
                f"fsdp_config: 'transformer_layer_cls_to_wrap' names {name!r}, and {type(model).__name__} has no such "
                f"module. It has {', '.join(known[:12])}."
            )
