"""Weights that share memory are written once, or each where that would lose one, and are shared again when loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
from checkpoint import snapshots
from torch import nn

from burnish.checkpoint import tensors
from burnish.checkpoint.weights import load_weights, save_weights


def tied() -> Any:
    return tiny.llama(tie_word_embeddings=True)


def tied_by_hand() -> Any:
    """The config does not know of it."""
    model = tiny.llama()
    model.lm_head.weight = model.model.embed_tokens.weight
    return model


def one_layer_twice() -> Any:
    model = tiny.llama()
    model.model.layers[1].mlp = model.model.layers[0].mlp
    return model


def halves_that_overlap() -> Any:
    model = tiny.llama()
    whole = torch.randn(96, 32)
    model.model.layers[0].mlp.gate_proj.weight.data = whole[:64]
    model.model.layers[1].mlp.gate_proj.weight.data = whole[32:]
    return model


def one_the_other_transposed() -> Any:
    model = tiny.llama()
    model.model.layers[0].mlp.down_proj.weight.data = model.model.layers[0].mlp.gate_proj.weight.data.t()
    return model


class Albert(nn.Module):
    """No model of transformers: one block used three times, an embedding and its transpose, and a window on it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(12, 8))
        self.block = nn.Linear(8, 8)
        self.blocks = nn.ModuleList([self.block] * 3)
        self.out = nn.Linear(12, 8, bias=False)
        self.out.weight.data = self.table.data.t()
        self.few = nn.Linear(8, 4, bias=False)
        self.few.weight.data = self.table.data[2:6]


MODELS: dict[str, Callable[[], Any]] = {
    made.__name__: made
    for made in (tied, tied_by_hand, one_layer_twice, halves_that_overlap, one_the_other_transposed, Albert)
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_loaded_is_what_was_saved_and_shares_what_it_shared(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    expected = {key: value.clone() for key, value in model.state_dict().items()}
    places = memory(model)
    save_weights(model, tmp_path)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    load_weights(model, tmp_path)
    assert all(torch.equal(value, expected[key]) for key, value in model.state_dict().items())
    assert memory(model) == places
    fresh = MODELS[name]()
    load_weights(fresh, tmp_path)
    assert all(torch.equal(value, expected[key]) for key, value in fresh.state_dict().items())


def memory(model: nn.Module) -> dict[str, int]:
    return {key: value.untyped_storage().data_ptr() for key, value in model.state_dict(keep_vars=True).items()}


@pytest.mark.parametrize("name", [name for name in MODELS if name != "Albert"])
def test_from_pretrained_finds_every_weight(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    save_weights(model, tmp_path)
    fresh, told = transformers.LlamaForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    assert snapshots.differences(model, fresh) == []


def test_a_weight_that_the_class_ties_is_written_once(tmp_path: Path) -> None:
    save_weights(tied(), tmp_path / "tied")
    assert "lm_head.weight" not in tensors.read_file(tmp_path / "tied" / "model.safetensors")
    save_weights(Albert(), tmp_path / "plain")
    from safetensors import safe_open

    with safe_open(tmp_path / "plain" / "model.safetensors", framework="pt") as file:
        names = set(file.keys())
    assert {"block.weight", "table", "out.weight", "few.weight"} <= names and "blocks.1.weight" not in names


def test_the_model_and_the_tensors_given_are_left_as_they_are(tmp_path: Path) -> None:
    model = one_layer_twice()
    state = model.state_dict()
    before = dict(state)
    save_weights(model, tmp_path, state=state)
    assert state.keys() == before.keys() and all(state[name] is before[name] for name in state)
    assert model.model.layers[1].mlp is model.model.layers[0].mlp
