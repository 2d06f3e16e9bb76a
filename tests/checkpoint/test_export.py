"""The model folder that a run leaves behind: complete for `from_pretrained`, and never half of two models."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
from checkpoint import snapshots

from burnish.checkpoint import staging
from burnish.checkpoint.export import export_model


def in_shards(model: Any) -> Any:
    """Saves itself in many small files."""
    model.save_pretrained = partial(model.save_pretrained, max_shard_size="20KB")
    return model


def for_generation(**changes: Any) -> Any:
    model = tiny.llama(**changes)
    model.generation_config.update(do_sample=True, temperature=0.7, max_new_tokens=5)
    return model


MODELS: dict[str, Callable[[], Any]] = {
    "classifier": lambda: tiny.bert("SequenceClassification", num_labels=3, id2label={0: "a", 1: "b", 2: "c"}),
    "causal": for_generation,
    "tied": lambda: for_generation(tie_word_embeddings=True),
    "encoder-decoder": tiny.t5,
    "bfloat16": lambda: for_generation().to(torch.bfloat16),
    "shards": lambda: in_shards(tiny.llama()),
    "shards, tied": lambda: in_shards(tiny.llama(tie_word_embeddings=True)),
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_comes_back_whole_with_its_configs_unchanged(kind: str, tmp_path: Path) -> None:
    made = MODELS[kind]()
    made.save_pretrained(tmp_path / "published")
    model = type(made).from_pretrained(tmp_path / "published", dtype="auto")
    if kind.startswith("shards"):
        in_shards(model)
    export_model(model, tmp_path / "out", processing_class=tiny.tokenizer(), settings={})
    found, told = type(model).from_pretrained(tmp_path / "out", dtype="auto", output_loading_info=True)
    assert not any(told.values())
    assert found.dtype == model.dtype
    assert snapshots.differences(model, found) == []
    for name in ("config.json", "generation_config.json"):
        before, after = (tmp_path / folder / name for folder in ("published", "out"))
        assert before.exists() == after.exists()
        if before.exists():
            assert json.loads(after.read_text()) == json.loads(before.read_text())
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "out")("w5 w7")["input_ids"] == [5, 7]
    if kind.startswith("shards"):
        assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 1


def test_adapters_come_back_on_their_model(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    tiny.llama().save_pretrained(tmp_path / "base")
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    settings = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], init_lora_weights=False)
    model = peft.get_peft_model(base, settings)
    out = tmp_path / "out"
    export_model(model, out, processing_class=tiny.tokenizer())
    found = peft.AutoPeftModelForCausalLM.from_pretrained(out)
    assert snapshots.differences(model, found) == []
    assert not (out / "README.md").exists()  # the empty form of peft
    assert transformers.AutoTokenizer.from_pretrained(out)("w5")["input_ids"] == [5]


def test_a_card_is_written_and_otherwise_left(tmp_path: Path) -> None:
    export_model(tiny.llama(), tmp_path, card="one")
    export_model(tiny.llama(), tmp_path)
    assert (tmp_path / "README.md").read_text() == "one"
    export_model(tiny.llama(), tmp_path, card="two")
    assert (tmp_path / "README.md").read_text() == "two"


# ---------------------------------------------------------------- a process that dies while it saves


class Died(BaseException):
    """What comes of a process that is killed, as far as the disk shows it."""


def died_at_rename(number: int, monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> bool:
    """Whether the work died before its n-th rename; it may have fewer."""
    plain, seen = os.replace, []

    def replace(source: Any, target: Any) -> None:
        seen.append(target)
        if len(seen) >= number:
            raise Died
        plain(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        try:
            work()
        except Died:
            return True
    return False


@pytest.mark.parametrize("sharded", [False, True])
def test_a_save_that_dies_at_any_rename_leaves_the_older_model_or_the_newer(
    sharded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = in_shards if sharded else lambda model: model
    old, new = form(tiny.llama()), form(tiny.llama())
    with torch.no_grad():
        for weight in new.parameters():
            weight.add_(1)
    outcomes = set()
    for number in range(1, 40):
        folder = tmp_path / str(number)
        export_model(old, folder)
        if not died_at_rename(number, monkeypatch, lambda to=folder: export_model(new, to)):
            break
        staging.finish_models(folder, ours=True)  # what the next process does
        found = transformers.AutoModelForCausalLM.from_pretrained(folder)
        matches = [name for name, model in (("old", old), ("new", new)) if not snapshots.differences(model, found)]
        assert len(matches) == 1, number
        outcomes.update(matches)
        assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]
    else:
        pytest.fail("a save has fewer renames than that")
    assert outcomes == {"old", "new"}


def test_shards_take_the_place_of_a_single_file_in_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for those who read the folder before anybody has finished the move."""
    old, new = tiny.llama(), in_shards(tiny.llama())
    with torch.no_grad():
        new.lm_head.weight.add_(1)
    for number in (2, 5, 9):
        folder = tmp_path / str(number)
        export_model(old, folder)
        assert died_at_rename(number, monkeypatch, lambda to=folder: export_model(new, to))
        assert snapshots.differences(old, transformers.AutoModelForCausalLM.from_pretrained(folder)) == []
