"""A whole model out of parts, by one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
from checkpoint import snapshots
from torch import nn

from burnish.checkpoint import parts, pretrained, store, verify
from burnish.checkpoint.merge import merge
from burnish.checkpoint.weights import load_weights
from burnish.core.errors import CheckpointError


def in_parts(
    output_dir: Path, model: nn.Module, count: int = 2, left_out: int | None = None, said: int | None = None
) -> Path:
    """A checkpoint of which `count` processes would have written their rows; in their names they are `said`."""
    snapshot = snapshots.snapshot(model=model, optimizer=None, scheduler=None, model_written=True)
    folder = store.stage(output_dir, 2, snapshot)
    parts.make_place(folder)
    all_of_it = parts.part_of(model, snapshots.adamw(model), weights=True, index=0)
    for index in range(count):
        rows = {name: _rows(tensor, index, count) for name, tensor in all_of_it.tensors.items()}
        held = {name: tensor for name, (tensor, _) in rows.items() if tensor.numel()}
        shared = all_of_it.shared if index == 0 else {}
        part = parts.Part(held, {name: rows[name][1] for name in held}, shared=shared)
        if index != left_out:
            parts.write(part, folder, index, said or count)
    pretrained.save_configs(model, folder)
    store.save_processing_class(tiny.tokenizer(), folder)
    return store.write(output_dir, 2, snapshot, folder)


def _rows(tensor: torch.Tensor, index: int, count: int) -> tuple[torch.Tensor, list[int]]:
    if tensor.ndim == 0:
        return (tensor if index == 0 else tensor.new_empty(0)), []
    chunks = torch.chunk(tensor, count)
    chunk = chunks[index] if index < len(chunks) else tensor[:0]
    return chunk, [sum(map(len, chunks[:index])), *[0] * (tensor.ndim - 1)]


def same(one: nn.Module, other: nn.Module) -> bool:
    return not snapshots.differences(one, other)


def shared_by_hand() -> Any:
    model = tiny.llama(tie_word_embeddings=False)
    model.lm_head.weight = model.model.embed_tokens.weight
    return model


@pytest.mark.parametrize("largest_file", [10**9, 20_000])
def test_a_model_of_transformers_loads(largest_file: int, tmp_path: Path) -> None:
    model = tiny.llama(tie_word_embeddings=True)
    names = merge(in_parts(tmp_path / "run", model), tmp_path / "model", largest_file)
    assert same(transformers.LlamaForCausalLM.from_pretrained(tmp_path / "model"), model)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "model").vocab_size == tiny.tokenizer().vocab_size
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == sorted(names)
    files = [name for name in names if name.endswith(".safetensors")]
    assert len(files) > 1 if largest_file < 10**9 else files == ["model.safetensors"]
    assert not {"trainer_state.json", "rng_state.pth", "manifest.json", "burnish.json"} & set(names)
    assert not list(verify.unreadable(tmp_path / "model"))


def test_weights_keep_their_type(tmp_path: Path) -> None:
    """They are written in the one that they have, and the config says so, whatever the model computes in."""
    model = tiny.llama()
    model.config.dtype = torch.bfloat16
    merge(in_parts(tmp_path / "run", model, 3), tmp_path / "model")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert loaded.dtype == torch.float32 and same(loaded, model)
    half = tiny.llama().to(torch.bfloat16)
    merge(in_parts(tmp_path / "half", half), tmp_path / "model")
    assert same(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype="auto"), half)


@pytest.mark.parametrize("build", [snapshots.plain, shared_by_hand])
def test_a_weight_of_two_names_has_both(build: Any, tmp_path: Path) -> None:
    """Where no class ties them."""
    model = build()
    merge(in_parts(tmp_path / "run", model), tmp_path / "model")
    if isinstance(model, transformers.PreTrainedModel):
        assert same(transformers.LlamaForCausalLM.from_pretrained(tmp_path / "model"), model)
    other = build()
    load_weights(other, tmp_path / "model")
    assert same(other, model)


def test_a_whole_checkpoint_gives_its_model(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path / "run", 2)
    assert merge(checkpoint, tmp_path / "model") == ["model.safetensors"]
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == (checkpoint / "model.safetensors").read_bytes()


def test_what_is_damaged_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    model = tiny.llama()
    checkpoint = in_parts(tmp_path / "run", model)
    merge(checkpoint, tmp_path / "model")
    part = sorted((checkpoint / "parts").glob("*.safetensors"))[1]
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"is no good checkpoint: parts/.*its checksum differs"):
        merge(checkpoint, tmp_path / "model")
    for left_out in (0, 1):
        with pytest.raises(CheckpointError, match=r"checkpoint-2 holds 1 parts of 2"):
            merge(in_parts(tmp_path / f"lacking {left_out}", model, 2, left_out), tmp_path / "model")
    with pytest.raises(CheckpointError, match=r"The parts of .* do not make a whole"):
        merge(in_parts(tmp_path / "lacking", model, 2, left_out=0, said=1), tmp_path / "model")
    assert same(transformers.LlamaForCausalLM.from_pretrained(tmp_path / "model"), model)
    assert not list((tmp_path / "model").glob(".*"))


def test_what_must_stay_is_refused(tmp_path: Path) -> None:
    (checkpoint,) = snapshots.write(tmp_path / "run", 2)
    with pytest.raises(CheckpointError, match="is a checkpoint, which must stay as it is"):
        merge(checkpoint, checkpoint)
    with pytest.raises(CheckpointError, match="does not exist"):
        merge(tmp_path / "nothing", tmp_path / "model")


@pytest.mark.filterwarnings("default")
def test_adapters_are_whole_already(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(tiny.llama(), config)
    snapshot = snapshots.snapshot(model=model, optimizer=None, scheduler=None)
    with pytest.raises(CheckpointError, match="holds adapters, whole"):
        merge(store.write(tmp_path / "run", 2, snapshot), tmp_path / "model")
