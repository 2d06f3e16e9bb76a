"""Divided models that are put together in other ways than most, and used before they are trained."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import peft
import pytest
import tiny
import torch
from distributed.forked import in_processes, values
from distributed.grid import WAYS, collator_for
from distributed.test_fsdp import whole
from trainer import runs

import burnish

FSDP = {"fsdp": True}
PARTS = {"fsdp": True, "fsdp_config": {"state_dict_type": "SHARDED_STATE_DICT"}}


def own_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-5)


def judged_first(folder: Path, count: int, is_own: bool, **settings: Any) -> Any:
    """Evaluated, trained, evaluated and trained again."""
    model = tiny.llama()
    parts = {"model": model, "train_dataset": tiny.language_rows(8), "eval_dataset": tiny.language_rows(3)}
    parts |= {
        "data_collator": collator_for("causal lm"),
        "optimizers": (own_optimizer(model) if is_own else None, None),
    }
    given = {"per_device_train_batch_size": 4 // count, "max_steps": 2, **WAYS["clipped AdamW"], **settings}
    run = runs.trainer(folder, parts=parts, **given)
    losses = [run.evaluate()["eval_loss"]]
    for _ in range(2):
        run.train()
        losses.append(run.evaluate()["eval_loss"])
    return losses, runs.logged(run, "grad_norm"), whole(run.model)


@pytest.mark.parametrize("is_own", [False, True])
def test_an_evaluation_before_training_changes_nothing(is_own: bool, tmp_path: Path) -> None:
    """It leaves weights gathered, of which no optimizer must be made; and divides those of one that is there."""
    alone = judged_first(tmp_path / "alone", 1, is_own)
    for found in values(in_processes(2, tmp_path, judged_first, tmp_path / "together", 2, is_own, **FSDP)):
        assert found[0] == pytest.approx(alone[0], rel=2e-5) and found[1] == pytest.approx(alone[1], rel=2e-5)
        assert runs.difference(found[2], alone[2]) < 2e-6


def of_a_part_after_all(folder: Path) -> None:
    """An optimizer of weights as they are while they are gathered."""
    run = runs.trainer(folder, parts={"eval_dataset": tiny.class_rows(2)}, max_steps=1, **FSDP)
    run.evaluate()
    run.given_optimizers = torch.optim.SGD(run.model.parameters(), lr=0.1), None
    run.train()


def test_an_optimizer_of_gathered_weights_is_refused(tmp_path: Path) -> None:
    ended = in_processes(2, tmp_path, of_a_part_after_all, tmp_path)
    assert [one.error for one in ended] == ["SettingError"] * 2


PROMPTS = {
    "prefix": peft.PrefixTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
    "prompt": peft.PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
    "network": peft.PromptEncoderConfig(num_virtual_tokens=3, task_type="CAUSAL_LM", encoder_hidden_size=16),
}


def prompted(folder: Path, count: int, kind: str, **settings: Any) -> Any:
    """Adapters that learn a prompt, saved, and read back where the best was."""
    model = tiny.seeded(lambda: peft.get_peft_model(tiny.llama(), PROMPTS[kind]))
    parts = {"model": model, "train_dataset": tiny.language_rows(8), "eval_dataset": tiny.language_rows(3)}
    parts["data_collator"] = collator_for("causal lm")
    given = {"per_device_train_batch_size": 4 // count, "max_steps": 2, "load_best_model_at_end": True, **settings}
    given |= dict.fromkeys(("eval_strategy", "save_strategy"), "steps") | {"eval_steps": 1, "save_steps": 1}
    run = runs.trainer(folder, parts=parts, **{**WAYS["clipped AdamW"], **given})
    run.train()
    run.save_model()
    return whole(run.model), run.evaluate()["eval_loss"]


@pytest.mark.parametrize("settings", [FSDP, PARTS], ids=["full", "parts"])
@pytest.mark.parametrize("kind", PROMPTS)
def test_learned_prompts(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """The wrapper holds the embeddings, too, and peft computes what it writes."""
    alone = prompted(tmp_path / "alone", 1, kind)
    for weights, loss in values(in_processes(2, tmp_path, prompted, tmp_path / "together", 2, kind, **settings)):
        assert runs.difference(weights, alone[0]) < 2e-6 and loss == pytest.approx(alone[1], rel=2e-5)
    one, other = (peft.load_peft_weights(str(tmp_path / name), device="cpu") for name in ("alone", "together"))
    assert runs.difference(one, other) < 2e-6


def with_embeddings_in_a_block(folder: Path, count: int, **settings: Any) -> Any:
    """BERT names its embeddings as a block, and the wrapper calls those of the words by itself."""
    config = peft.PromptTuningConfig(num_virtual_tokens=3, task_type="SEQ_CLS")
    base = lambda: runs.classifier(max_position_embeddings=2 * tiny.MAX_LENGTH)  # noqa: E731
    model = tiny.seeded(lambda: peft.get_peft_model(base(), config))
    run = runs.trainer(folder, parts={"model": model}, max_steps=2, per_device_train_batch_size=4 // count, **settings)
    run.train()
    return whole(run.model)


def test_a_block_of_which_another_module_holds_a_part(tmp_path: Path) -> None:
    alone = with_embeddings_in_a_block(tmp_path / "alone", 1)
    for found in values(in_processes(2, tmp_path, with_embeddings_in_a_block, tmp_path / "together", 2, **FSDP)):
        assert runs.difference(found, alone) < 1e-5


class Penalty(burnish.Trainer):
    """A loss of all weights, which lie in parts unless the model is gathered whole."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **more)
        loss = loss + 1e-3 * sum(weight.square().sum() for weight in model.parameters())
        return (loss, outputs) if return_outputs else loss


def with_penalty(folder: Path, count: int, **settings: Any) -> Any:
    given = {"per_device_train_batch_size": 4 // count, "max_steps": 2, **settings}
    run = runs.trainer(folder, Penalty, **given)
    run.train()
    return whole(run.model), runs.logged(run, "loss")


def judged_with_penalty(folder: Path, count: int, **settings: Any) -> None:
    runs.trainer(folder, Penalty, parts={"eval_dataset": tiny.class_rows(4)}, **settings).evaluate()


def test_a_loss_of_the_weights(tmp_path: Path) -> None:
    at_once = {**FSDP, "fsdp_config": {"auto_wrap_policy": "NO_WRAP"}}
    alone = with_penalty(tmp_path / "alone", 1)
    for weights, loss in values(in_processes(2, tmp_path, with_penalty, tmp_path / "together", 2, **at_once)):
        assert loss == pytest.approx(alone[1], rel=2e-5) and runs.difference(weights, alone[0]) < 1e-5
    for work in (with_penalty, judged_with_penalty):
        for one in in_processes(2, tmp_path, work, tmp_path / "blocks", 2, **FSDP):
            assert one.error == "SettingError" and "NO_WRAP" in one.words, one


def with_two_types(folder: Path) -> None:
    model = runs.classifier().to(torch.bfloat16)
    model.classifier.float()
    runs.trainer(folder, parts={"model": model}, max_steps=1, bf16=True, **FSDP).train()


def factored(folder: Path) -> None:
    runs.trainer(folder, max_steps=1, optim="adafactor", **FSDP).train()


@pytest.mark.parametrize(("work", "words"), [(with_two_types, "dtype"), (factored, "Adafactor does not take")])
def test_what_torch_cannot_divide_is_told(work: Any, words: str, tmp_path: Path) -> None:
    for one in in_processes(2, tmp_path, work, tmp_path):
        assert one.error == "SettingError" and words in one.words, one


def with_an_adapter_at_rest(folder: Path, count: int, **settings: Any) -> None:
    model = peft.get_peft_model(runs.classifier(), peft.LoraConfig(r=4, target_modules=["query"], task_type="SEQ_CLS"))
    model.add_adapter("resting", peft.LoraConfig(r=2, target_modules=["value"], task_type="SEQ_CLS"))
    given = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1, "per_device_train_batch_size": 4 // count}
    run = runs.trainer(folder, parts={"model": model}, **given, **settings)
    run.train()
    run.save_model()


@pytest.mark.parametrize("settings", [FSDP, PARTS], ids=["full", "parts"])
def test_an_adapter_at_rest_is_written_too(settings: dict[str, Any], tmp_path: Path) -> None:
    with_an_adapter_at_rest(tmp_path / "alone", 1)
    values(in_processes(2, tmp_path, with_an_adapter_at_rest, tmp_path / "together", 2, **settings))
    for place in (".", "resting", "checkpoint-1", "checkpoint-1/resting"):
        alone, found = (peft.load_peft_weights(str(tmp_path / one / place)) for one in ("alone", "together"))
        assert alone and {name: value.shape for name, value in found.items()} == {
            name: value.shape for name, value in alone.items()
        }, place


def frozen_on_one(folder: Path) -> None:
    model = runs.classifier()
    model.classifier.requires_grad_(int(os.environ["RANK"]) == 0)
    runs.trainer(folder, parts={"model": model}, max_steps=1, **FSDP).train()


def test_what_is_trained_on_one_process_alone_is_told(tmp_path: Path) -> None:
    for one in in_processes(2, tmp_path, frozen_on_one, tmp_path):
        assert one.error == "SettingError" and "process 1" in one.words and "'frozen'" in one.words, one
