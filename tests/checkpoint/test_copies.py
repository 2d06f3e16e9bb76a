"""What is written from copies is what would have been written at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from checkpoint import snapshots

from burnish.checkpoint import manifest, store, tensors
from burnish.checkpoint.copies import HostMemory, can_be_held, held
from burnish.checkpoint.restore import restore_optimizer
from burnish.checkpoint.store import Snapshot
from burnish.core.errors import CheckpointError


def lora() -> Any:
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(tiny.llama(), peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))


MODELS: dict[str, Any] = {
    "plain module": snapshots.plain,
    "tied": lambda: tiny.llama(tie_word_embeddings=True),
    "encoder": lambda: tiny.bert("SequenceClassification"),
    "adapters": pytest.param(lora, marks=pytest.mark.filterwarnings("default")),
}


def built(build: Callable[[], Any]) -> Snapshot:
    model = build()
    optimizer = snapshots.adamw(model)
    snapshots.trained(model, optimizer)
    made = snapshots.snapshot(model=model, optimizer=optimizer, processing_class=tiny.tokenizer())
    return replace(made, random_states=store.random_states(1))


def contents(checkpoint: Path) -> dict[str, Any]:
    """Files by name; of tensors their values, since files of equal tensors are not always equal."""

    def content(path: Path) -> Any:
        if path.suffix in (".pt", ".pth"):
            return torch.load(path, weights_only=False)
        return tensors.read_file(path) if path.suffix == ".safetensors" else path.read_bytes()

    return {path.name: content(path) for path in checkpoint.iterdir() if path.name != "manifest.json"}


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS.keys())
def test_training_goes_on_and_the_checkpoint_is_of_its_moment(build: Callable[[], Any], tmp_path: Path) -> None:
    snapshot = built(build)
    at_once = store.write(tmp_path / "at once", 2, snapshot)
    config = getattr(snapshot.model, "config", None)
    before = dict(vars(config)) if config is not None else {}
    copy = held(snapshot, HostMemory())
    snapshots.trained(snapshot.model, snapshot.optimizer, steps=3, seed=90)
    snapshot.state.global_step, snapshot.state.log_history = 9, [{"loss": 1.0}]
    later = store.write(tmp_path / "later", 2, copy)
    one, other = contents(at_once), contents(later)
    assert one.keys() == other.keys()
    for name, content in one.items():
        if isinstance(content, bytes):
            assert content == other[name], name
        elif name != "rng_state.pth":
            torch.testing.assert_close(other[name], content, rtol=0, atol=0)
    assert (dict(vars(config)) if config is not None else {}) == before


def test_the_copy_of_an_optimizer_carries_its_name(tmp_path: Path) -> None:
    checkpoint = store.write(tmp_path, 2, held(built(snapshots.plain), HostMemory()))
    with pytest.raises(CheckpointError, match="AdamW, and this run uses SGD"):
        restore_optimizer(checkpoint, torch.optim.SGD(snapshots.plain().parameters(), lr=0.1))


def test_an_only_model_copy_holds_no_state_of_the_optimizer(tmp_path: Path) -> None:
    checkpoint = store.write(tmp_path, 2, held(replace(built(snapshots.plain), only_model=True), HostMemory()))
    assert not (checkpoint / "optimizer.pt").exists()
    assert manifest.read(checkpoint)["only_model"] is True


def test_memory_is_used_again_and_shared_where_it_was_shared() -> None:
    memory = HostMemory()
    weight = torch.arange(6.0).reshape(2, 3)
    first = memory.copied({"a": weight, "b": weight, "turned": weight.t(), "list": [1, (weight + 1, "x")]})
    assert first["a"] is first["b"]
    assert torch.equal(first["turned"], weight.t()) and first["list"][1][1] == "x"
    places = {first["a"].data_ptr(), first["list"][1][0].data_ptr()}
    weight.add_(10)
    assert first["a"][0, 0] == 0
    second = memory.copied({"a": weight, "c": weight * 2})
    assert {second["a"].data_ptr(), second["c"].data_ptr()} == places
    assert torch.equal(second["a"], weight) and torch.equal(second["c"], weight * 2)


def test_models_that_only_their_own_code_can_write_are_not_copied() -> None:
    import transformers

    class Own(transformers.BertForSequenceClassification):
        def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
            super().save_pretrained(*args, **kwargs)

    plain = built(lambda: tiny.bert("SequenceClassification"))
    assert can_be_held(plain)
    assert not can_be_held(replace(plain, model=Own(tiny.bert_config())))
    assert not can_be_held(replace(plain, write_model=lambda folder: None))
    plain.model.hf_device_map = {"": "disk"}
    assert not can_be_held(plain)
