"""A model from its config alone: every shape is there, and not one number."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from burnish.core.errors import SettingError
from burnish.core.zero_parts import loaded_whole
from burnish.engines.tables import FEWEST_ELEMENTS

from .scenario import Scenario
from .weights import NF4_BYTES, Weight


@contextlib.contextmanager
def without_memory() -> Iterator[None]:
    """Tensors made inside know their shape, type and device, and own no memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), torch.device("cpu"):
        yield


def blank_model(auto_class_name: str, config: Any, scenario: Scenario) -> Any:
    """The model that would be trained. Call it `without_memory`.

    Raises:
        SettingError: the config is of no such model.
    """
    import transformers

    auto_class = getattr(transformers, auto_class_name)
    try:
        with loaded_whole():
            model = auto_class.from_config(config, dtype=getattr(torch, scenario.weights))
    except ValueError as error:
        name = getattr(config, "model_type", "this")
        raise SettingError(f"A model of type {name!r} cannot be made as {auto_class_name}: {error}") from error
    if scenario.lora_rank is not None:
        add_adapters(model, scenario.lora_rank)
    return model.train()


def shallow(config: Any, depth: int) -> Any:
    """The same config with fewer layers. Lists with an entry a layer are cut, too."""
    copied = copy.deepcopy(config)
    full = copied.num_hidden_layers
    for name, value in vars(config).items():
        if isinstance(value, (list, tuple)) and len(value) == full:
            setattr(copied, name, value[:depth])
    copied.num_hidden_layers = depth
    return copied


def stack_of(model: Any) -> nn.ModuleList | None:
    """The one stack of like layers of a model, if it has one."""
    number = getattr(model.config, "num_hidden_layers", None)
    stacks = [part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) == number]
    if getattr(model.config, "is_encoder_decoder", False) or len(stacks) != 1:
        return None
    return stacks[0]


class LowRank(nn.Module):
    """A frozen linear layer beside the product of two narrow ones (Hu et al., 2021), computed as peft computes it."""

    def __init__(self, base: nn.Module, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.base, self.size = base, inputs * outputs
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)

    @property
    def weight(self) -> Any:
        """Of the frozen layer, whose type some models look at."""
        return self.base.weight

    @property
    def bias(self) -> Any:
        return self.base.bias

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.base(hidden)
        return result + self.up(self.down(hidden.to(self.down.weight.dtype))) * 2.0


def add_adapters(model: Any, rank: int) -> None:
    """Freezes all weights and puts adapters on all linear layers but the output layer."""
    model.requires_grad_(False)
    output = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    for parent in list(model.modules()):
        for name, part in list(parent.named_children()):
            shape = linear_shape(part)
            if shape is not None and part is not output and not isinstance(parent, LowRank):
                setattr(parent, name, LowRank(part, *shape, rank))


def linear_shape(part: nn.Module) -> tuple[int, int] | None:
    """(inputs, outputs) of a linear layer, GPT-2's kind included; None for other modules."""
    if isinstance(part, nn.Linear):
        return part.in_features, part.out_features
    if type(part).__name__ == "Conv1D":
        weight: Any = part.weight
        inputs, outputs = weight.shape
        return int(inputs), int(outputs)
    return None


def weights_of(model: Any, scenario: Scenario) -> list[Weight]:
    """All parameters, each once."""
    owners = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    tables = {id(part.weight): part for part in model.modules() if isinstance(part, nn.Embedding)}
    frozen = {id(part.base.weight) for part in model.modules() if isinstance(part, LowRank)}
    found = []
    for weight in model.parameters():
        is_table = id(weight) in tables
        large = is_table and owners[id(weight)] == 1 and weight.numel() >= FEWEST_ELEMENTS
        each = NF4_BYTES if scenario.four_bit and id(weight) in frozen else weight.element_size()
        may_have = scenario.device == "cpu" and scenario.autocast != "fp16" and not scenario.in_backward
        has_buffer = large and weight.requires_grad and may_have
        found.append(Weight(tuple(weight.shape), each, weight.requires_grad, is_table, has_buffer))
    return found


def largest_linear(model: Any) -> int:
    """Elements of the largest frozen linear layer."""
    return max((part.size for part in model.modules() if isinstance(part, LowRank)), default=0)
