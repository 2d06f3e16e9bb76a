"""Checkpoints of divided models: whole or in parts, gone on from by any engine on any number of processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import peft
import pytest
import tiny
import torch
import transformers
from distributed.forked import in_processes, values
from distributed.test_checkpoints import Stop
from distributed.test_fsdp import whole
from trainer import runs

import burnish
from burnish.checkpoint import copies, find, weights
from burnish.checkpoint.merge import merge
from burnish.checkpoint.verify import problem_with

ROWS = 20
FULL: dict[str, Any] = {"fsdp": True}
PARTS: dict[str, Any] = {"fsdp": True, "fsdp_config": {"state_dict_type": "SHARDED_STATE_DICT"}}
ENGINES: dict[str, tuple[int, dict[str, Any]]] = {
    "single": (1, {}),
    "ddp": (2, {}),
    "fsdp": (2, FULL),
    "parts": (2, PARTS),
    "parts of three": (3, PARTS),
}


def model() -> Any:
    return runs.classifier(hidden_dropout_prob=0.1)


def with_adapters() -> Any:
    config = peft.LoraConfig(
        r=4, target_modules=["query", "value"], modules_to_save=["classifier"], task_type="SEQ_CLS"
    )
    return peft.get_peft_model(runs.classifier(), config)


def trained(folder: Path, count: int, stop: int | None = None, build: Any = model, **settings: Any) -> dict[str, Any]:
    """Two passes over 20 rows, in steps of 12."""
    resume = settings.pop("resume", None)
    parts = {"model": build(), "train_dataset": tiny.class_rows(ROWS), "callbacks": [Stop(stop)] if stop else []}
    given = {"num_train_epochs": 2, "per_device_train_batch_size": 12 // count, **settings}
    run = runs.trainer(folder, parts=parts, **given)
    run.train(resume_from_checkpoint=resume)
    return {
        "weights": whole(run.model),
        "steps": run.state.global_step,
        "examples": run.state.num_examples_seen,
        "loss": runs.logged(run, "loss"),
    }


def together(engine: str, folder: Path, stop: int | None = None, **more: Any) -> list[dict[str, Any]]:
    count, settings = ENGINES[engine]
    return values(in_processes(count, folder, trained, folder, count, stop, **settings, **more))


@pytest.mark.parametrize("engine", ["fsdp", "parts"])
def test_a_resumed_run_ends_with_the_same_bits(engine: str, tmp_path: Path) -> None:
    straight = together(engine, tmp_path / "straight")
    together(engine, tmp_path / "broken", stop=2)
    for one in together(engine, tmp_path / "broken", resume=True):
        assert (one["steps"], one["examples"]) == (4, 2 * ROWS)
        assert runs.difference(one["weights"], straight[0]["weights"]) == 0.0
        assert one["loss"] == straight[0]["loss"]


@pytest.mark.parametrize("first", ["single", "ddp", "fsdp", "parts"])
def test_going_on_with_another_engine(first: str, tmp_path: Path) -> None:
    straight = trained(tmp_path / "straight", 1, build=runs.classifier)
    together(first, tmp_path / "run", stop=2, build=runs.classifier)
    for then in ("single", "ddp", "fsdp", "parts of three"):
        folder = tmp_path / then
        for one in together(then, folder, resume=str(tmp_path / "run" / "checkpoint-2"), build=runs.classifier):
            assert (one["steps"], one["examples"]) == (4, 2 * ROWS), then
            assert runs.difference(one["weights"], straight["weights"]) < 1e-5, then


def test_what_parts_look_like(tmp_path: Path) -> None:
    """Every process writes; the manifest knows all files, and none holds code."""
    together("parts", tmp_path / "run", stop=2)
    checkpoint = tmp_path / "run" / "checkpoint-2"
    names = {path.relative_to(checkpoint).as_posix() for path in checkpoint.rglob("*") if path.is_file()}
    assert len([name for name in names if name.startswith("parts/") and name.endswith(".safetensors")]) == 2
    assert not {"model.safetensors", "optimizer.pt"} & names and {"config.json", "parts/optimizer.json"} <= names
    assert set(json.loads((checkpoint / "manifest.json").read_text())["files"]) == names - {"manifest.json"}
    assert problem_with(checkpoint) is None and find.newest_good(tmp_path / "run", None) == checkpoint
    part = sorted((checkpoint / "parts").glob("*.safetensors"))[1]
    part.write_bytes(part.read_bytes()[:-8])
    assert "parts/" in str(problem_with(checkpoint)) and find.newest_good(tmp_path / "run", None) is None


@pytest.mark.parametrize("engine", ["fsdp", "parts"])
def test_adapters(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frozen and trained weights side by side; adapters are whole in every checkpoint, also behind the training."""
    monkeypatch.setattr(copies, "WORTH_A_COPY", 0)
    straight = trained(tmp_path / "straight", 1, build=with_adapters)
    together(engine, tmp_path / "run", stop=2, build=with_adapters)
    checkpoint = tmp_path / "run" / "checkpoint-2"
    assert (checkpoint / "adapter_model.safetensors").is_file() and not (checkpoint / "model.safetensors").exists()
    for then in ("single", engine):
        resume = str(checkpoint)
        for one in together(then, tmp_path / then, resume=resume, build=with_adapters):
            assert runs.difference(one["weights"], straight["weights"]) < 1e-5


def exported(folder: Path, **settings: Any) -> Any:
    """A run that ends with its best weights, and writes them."""
    parts = {"model": tiny.llama(tie_word_embeddings=True), "train_dataset": tiny.language_rows(ROWS)}
    parts |= {"eval_dataset": tiny.language_rows(5), "processing_class": tiny.tokenizer()}
    parts["data_collator"] = transformers.DataCollatorForTokenClassification(tiny.tokenizer())
    best = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    best |= {"load_best_model_at_end": True, "save_total_limit": 2}
    run = runs.trainer(folder, parts=parts, max_steps=3, learning_rate=0.5, **best, **settings)
    run.train()
    run.save_model()
    return whole(run.model), run.state.best_global_step, run.evaluate()["eval_loss"], run.state.best_metric


@pytest.mark.parametrize("engine", ["fsdp", "parts"])
def test_the_saved_model_loads(engine: str, tmp_path: Path) -> None:
    _, settings = ENGINES[engine]
    found = values(in_processes(2, tmp_path, exported, tmp_path / "run", **settings))
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "run")
    for one, step, loss, best in found:
        assert runs.difference(one, loaded) == 0.0
        assert step == found[0][1] and loss == pytest.approx(best, rel=1e-5)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert "LlamaForCausalLM" in (tmp_path / "run" / "README.md").read_text()
    kept = tmp_path / "run" / f"checkpoint-{found[0][1]}"
    other = tiny.llama(tie_word_embeddings=True)
    weights.load_weights(other, kept)
    assert runs.difference(other, loaded) == 0.0
    merge(kept, tmp_path / "merged")
    assert runs.difference(transformers.LlamaForCausalLM.from_pretrained(tmp_path / "merged"), loaded) == 0.0


class OwnSaving(burnish.Trainer):
    def save_model(self, output_dir: Any = None, _internal_call: bool = False) -> None:
        super().save_model(output_dir, _internal_call)
        if self.is_world_process_zero():
            (Path(output_dir) / "own.txt").write_text("mine")


def saved_by_user(folder: Path, **settings: Any) -> Any:
    run = runs.trainer(folder, OwnSaving, max_steps=1, save_strategy="steps", save_steps=1, **settings)
    run.train()
    return whole(run.model)


@pytest.mark.parametrize("engine", ["fsdp", "parts"])
def test_a_users_own_way_to_save(engine: str, tmp_path: Path) -> None:
    found = values(in_processes(2, tmp_path, saved_by_user, tmp_path / "run", **ENGINES[engine][1]))
    checkpoint = tmp_path / "run" / "checkpoint-1"
    assert (checkpoint / "own.txt").is_file() and problem_with(checkpoint) is None
    loaded = transformers.BertForSequenceClassification.from_pretrained(checkpoint)
    assert runs.difference(found[0], loaded) == 0.0


def with_other_weights(folder: Path) -> Any:
    trained(folder, 2, build=lambda: runs.classifier(num_labels=3), resume=True, **PARTS)


def test_parts_of_another_model(tmp_path: Path) -> None:
    together("parts", tmp_path / "run", stop=2)
    ended = in_processes(2, tmp_path, with_other_weights, tmp_path / "run")
    assert [one.error for one in ended] == ["CheckpointError"] * 2
    assert all("classifier.bias" in one.words for one in ended)


def test_torch_reads_parts(tmp_path: Path) -> None:
    """They are a checkpoint of torch.distributed.checkpoint."""
    import torch.distributed.checkpoint as dcp

    found = together("parts", tmp_path / "run", stop=2)
    content = {"model.classifier.bias": torch.zeros(2)}
    reader = dcp.HuggingFaceStorageReader(str(tmp_path / "run" / "checkpoint-2" / "parts"))
    dcp.load(content, storage_reader=reader, no_dist=True)
    assert torch.equal(content["model.classifier.bias"], found[0]["weights"]["classifier.bias"])
