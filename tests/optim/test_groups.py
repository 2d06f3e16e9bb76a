"""The groups are those of transformers, by name and by order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tiny
import torch
import transformers
from torch import nn

from burnish.optim.groups import decay_parameter_names, parameter_groups


class Plain(nn.Module):
    """Names that say nothing: only the type tells a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.first = nn.Linear(3, 3)
        self.after = nn.LayerNorm(3)
        self.final_norm = nn.Linear(3, 3)


def gpt2() -> Any:
    config = transformers.GPT2Config(vocab_size=tiny.NUM_WORDS, n_embd=16, n_layer=1, n_head=2)
    return transformers.GPT2LMHeadModel(config)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "bert": lambda: tiny.bert("SequenceClassification"),
    "llama": tiny.llama,
    "t5": tiny.t5,
    "gpt2": gpt2,
    "plain": Plain,
}


def reference_names(model: nn.Module) -> list[str]:
    return transformers.Trainer.get_decay_parameter_names(None, model)


@pytest.mark.parametrize("name", MODELS)
def test_names_are_those_of_transformers(name: str) -> None:
    model = MODELS[name]()
    found = decay_parameter_names(model)
    assert sorted(found) == sorted(reference_names(model))
    assert 0 < len(found) < len(list(model.named_parameters()))


def test_a_plain_module_is_told_by_type_and_name() -> None:
    assert decay_parameter_names(Plain()) == ["scale", "first.weight"]


@pytest.mark.parametrize("name", MODELS)
def test_groups_hold_the_trainable_parameters_in_order(name: str) -> None:
    model = MODELS[name]()
    frozen = next(iter(model.parameters())).requires_grad_(False)
    decaying, others = parameter_groups(model, 0.1)
    reference = reference_names(model)
    trainable = [(key, p) for key, p in model.named_parameters() if p is not frozen]
    assert [id(p) for p in decaying["params"]] == [id(p) for key, p in trainable if key in reference]
    assert [id(p) for p in others["params"]] == [id(p) for key, p in trainable if key not in reference]
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.1, 0.0)


def test_both_groups_exist_when_one_is_empty() -> None:
    groups = parameter_groups(nn.Linear(2, 2, bias=False), 0.1)
    assert [len(group["params"]) for group in groups] == [1, 0]
