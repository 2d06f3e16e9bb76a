"""Adapters come back bit for bit, with everything that was trained beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from burnish.checkpoint.weights import load_weights, save_weights
from burnish.core.errors import CheckpointError

peft = pytest.importorskip("peft")

pytestmark = pytest.mark.filterwarnings("default")  # peft warns of its own settings


def adapted(config: Any) -> Any:
    base = tiny.llama()
    torch.manual_seed(1)
    return peft.get_peft_model(base, config)


def lora(**changes: Any) -> Any:
    return adapted(peft.LoraConfig(**{"r": 4, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM", **changes}))


def with_trained_norm() -> Any:
    """Someone unfroze a layer by hand: no file of the adapter holds it."""
    model = lora()
    model.base_model.model.model.norm.weight.requires_grad_(True)
    return model


def two_adapters() -> Any:
    model = lora()
    model.add_adapter("second", peft.LoraConfig(r=2, target_modules=["v_proj"], task_type="CAUSAL_LM"))
    model.set_adapter("second")
    return model


MODELS: dict[str, Callable[[], Any]] = {
    "lora": lora,
    "modules to save": lambda: lora(modules_to_save=["lm_head", "embed_tokens"]),
    "dora": lambda: lora(use_dora=True),
    "trained norm": with_trained_norm,
    "two adapters": two_adapters,
    "prompt made by a network": lambda: adapted(peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)),
    "prefix": lambda: adapted(
        peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, prefix_projection=True)
    ),
}


def trainable(model: Any) -> dict[str, torch.Tensor]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def moved(model: Any) -> Any:
    with torch.no_grad():
        for weight in trainable(model).values():
            weight.add_(torch.randn_like(weight))
    return model


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS.keys())
def test_everything_that_is_trained_returns(build: Callable[[], Any], tmp_path: Path) -> None:
    model, other = moved(build()), build()
    parameters = [id(weight) for weight in other.parameters()]
    save_weights(model, tmp_path)
    load_weights(other, tmp_path)
    saved, found = model.state_dict(), other.state_dict()
    assert [name for name in saved if not torch.equal(saved[name], found[name])] == []
    assert [id(weight) for weight in other.parameters()] == parameters
    assert trainable(model).keys() == trainable(other).keys()


def test_the_model_below_is_not_written(tmp_path: Path) -> None:
    save_weights(lora(), tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    assert not (tmp_path / "trainable.safetensors").exists()
    assert sorted(path.suffix for path in tmp_path.glob("adapter_*")) == [".json", ".safetensors"]


def test_saving_leaves_the_config_of_the_adapter_as_it_was(tmp_path: Path) -> None:
    model = lora()
    before = dict(vars(model.peft_config["default"]))
    save_weights(model, tmp_path)
    assert vars(model.peft_config["default"]) == before


def test_peft_itself_reads_the_folder(tmp_path: Path) -> None:
    model = moved(lora())
    save_weights(model, tmp_path)
    found = peft.PeftModel.from_pretrained(tiny.llama(), tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), found.parameters(), strict=True))


def test_an_adapter_with_other_targets_is_refused(tmp_path: Path) -> None:
    save_weights(lora(), tmp_path)
    with pytest.raises(CheckpointError, match=r"not in the file: .*v_proj"):
        load_weights(lora(target_modules=["q_proj", "v_proj"]), tmp_path)


def test_an_adapter_of_another_rank_is_refused(tmp_path: Path) -> None:
    save_weights(lora(r=2), tmp_path)
    with pytest.raises(CheckpointError, match="does not fit"):
        load_weights(lora(), tmp_path)


def test_adapters_are_not_loaded_into_a_model_without(tmp_path: Path) -> None:
    save_weights(lora(), tmp_path)
    with pytest.raises(CheckpointError, match="adapters"):
        load_weights(tiny.llama(), tmp_path)


def test_a_model_with_adapters_does_not_start_from_whole_weights(tmp_path: Path) -> None:
    save_weights(tiny.llama(), tmp_path)
    with pytest.raises(CheckpointError, match="adapter_model"):
        load_weights(lora(), tmp_path)
