"""Weights come back bit for bit, into the same objects, or not at all."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
from checkpoint import snapshots
from torch import nn

from burnish.checkpoint.weights import load_weights, save_weights
from burnish.core.errors import CheckpointError


def mixtral() -> Any:
    """Its experts are stacked in memory and one by one in a file."""
    shape = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes = {"num_key_value_heads": 2, "intermediate_size": 32, "num_local_experts": 2}
    config = transformers.MixtralConfig(**shape, **sizes)
    return tiny.seeded(lambda: transformers.MixtralForCausalLM(config))


MODELS: dict[str, Callable[[], Any]] = {
    "bert": lambda: tiny.bert("SequenceClassification"),
    "llama": tiny.llama,
    "tied llama": lambda: tiny.llama(tie_word_embeddings=True),
    "t5": tiny.t5,
    "mixtral": mixtral,
    "bfloat16": lambda: tiny.llama().to(torch.bfloat16),
    "compiled": lambda: torch.compile(tiny.llama(), backend="eager"),
    "plain": snapshots.plain,
}


def moved(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight))
    return model


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS.keys())
def test_weights_return_bit_for_bit_into_the_same_parameters(build: Callable[[], Any], tmp_path: Path) -> None:
    model, other = moved(build()), build()
    parameters = [id(weight) for weight in other.parameters()]
    assert snapshots.differences(model, other) != []
    save_weights(model, tmp_path)
    load_weights(other, tmp_path)
    assert snapshots.differences(model, other) == []
    assert [id(weight) for weight in other.parameters()] == parameters
    assert (tmp_path / "model.safetensors").is_file()


def test_from_pretrained_reads_the_folder(tmp_path: Path) -> None:
    model = moved(tiny.t5())
    save_weights(model, tmp_path)
    found = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path)
    assert snapshots.differences(model, found) == []
    assert (tmp_path / "generation_config.json").is_file()


def test_saving_leaves_the_config_of_the_model_as_it_was(tmp_path: Path) -> None:
    model = tiny.llama(use_cache=False)
    before = copy.deepcopy(vars(model.config))
    save_weights(model, tmp_path)
    assert vars(model.config) == before
    assert json.loads((tmp_path / "config.json").read_text())["use_cache"] is False


def test_contradicting_generation_settings_do_not_stop_a_save(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = tiny.llama()
    model.generation_config.do_sample = False
    model.generation_config.temperature = 0.5
    own = model.generation_config
    save_weights(model, tmp_path)
    assert json.loads((tmp_path / "generation_config.json").read_text())["temperature"] == 0.5
    assert model.generation_config is own
    assert "temperature" in caplog.text


def test_a_shared_weight_is_written_once_and_named_in_the_metadata(tmp_path: Path) -> None:
    from safetensors import safe_open

    save_weights(snapshots.plain(), tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert "head.weight" not in list(file.keys())
        assert file.metadata()["head.weight"] == "embed.weight"


def test_a_weight_saved_shared_fills_a_model_that_no_longer_shares_it(tmp_path: Path) -> None:
    save_weights(snapshots.plain(), tmp_path)
    apart = snapshots.plain(1)
    apart.head.weight = nn.Parameter(torch.zeros(12, 8))
    load_weights(apart, tmp_path)
    assert torch.equal(apart.head.weight, apart.embed.weight)
    assert apart.head.weight is not apart.embed.weight


def test_views_of_one_tensor_are_written_apart(tmp_path: Path) -> None:
    def build(value: float) -> nn.Module:
        whole = torch.full((4, 6), value)
        module = nn.Module()
        module.left, module.right = nn.Parameter(whole[:, :3]), nn.Parameter(whole[:, 3:])
        return module

    model, other = build(2.0), build(0.0)
    save_weights(model, tmp_path)
    load_weights(other, tmp_path)
    assert snapshots.differences(model, other) == []


def test_copies_taken_earlier_are_written_in_place_of_the_weights_of_now(tmp_path: Path) -> None:
    model, then = tiny.llama(), tiny.llama()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    moved(model)
    save_weights(model, tmp_path, state=state)
    found = moved(tiny.llama())
    load_weights(found, tmp_path)
    assert snapshots.differences(found, then) == []


def test_shards_are_read(tmp_path: Path) -> None:
    model = moved(tiny.llama())
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    other = tiny.llama()
    load_weights(other, tmp_path)
    assert snapshots.differences(model, other) == []
    next(tmp_path.glob("model-00002*")).unlink()
    with pytest.raises(CheckpointError, match="model-00002"):
        load_weights(other, tmp_path)


def test_weights_of_another_head_are_refused_with_both_shapes(tmp_path: Path) -> None:
    save_weights(tiny.bert("SequenceClassification", num_labels=3), tmp_path)
    with pytest.raises(CheckpointError, match=r"classifier\.weight \(\(3, 32\) in the file, \(2, 32\)"):
        load_weights(tiny.bert("SequenceClassification"), tmp_path)


def test_missing_and_unknown_weights_are_named(tmp_path: Path) -> None:
    save_weights(snapshots.plain(), tmp_path)
    other = snapshots.plain()
    other.body, other.added = nn.Identity(), nn.Linear(2, 2)
    with pytest.raises(CheckpointError) as refusal:
        load_weights(other, tmp_path)
    assert "added.weight" in str(refusal.value) and "body.weight" in str(refusal.value)


def test_a_folder_without_weights_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no weights"):
        load_weights(snapshots.plain(), tmp_path)


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    save_weights(snapshots.plain(), tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read"):
        load_weights(snapshots.plain(), tmp_path)


def test_a_state_that_is_no_tensor_is_named(tmp_path: Path) -> None:
    class Remembers(nn.Linear):
        def get_extra_state(self) -> object:
            return {"seen": 3}

        def set_extra_state(self, state: object) -> None:
            pass

    with pytest.raises(CheckpointError, match="_extra_state"):
        save_weights(nn.Sequential(Remembers(2, 2)), tmp_path)


def test_the_config_says_in_which_type_the_weights_were_written(tmp_path: Path) -> None:
    """Of a model that computes in 16 bits and keeps its weights in full elsewhere."""
    model = tiny.bert("SequenceClassification")
    full = {name: value.clone() for name, value in model.state_dict().items()}
    save_weights(model.bfloat16(), tmp_path, state=dict(full))
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert all(torch.equal(value, full[name]) for name, value in loaded.state_dict().items())
    assert model.dtype is torch.bfloat16
