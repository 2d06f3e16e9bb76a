"""ZeRO on several processes takes the steps that one process takes: loss, gradient norm, weights, evaluation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from distributed import grid
from distributed.forked import in_processes, values
from trainer import runs
from zero_runs import CPU, KINDS, stage, trained

import burnish

TOLERANCE = 1e-6

AUTO_ADAM = {
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}
}
FULL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ZeRO 0": (stage(0), {}),
    "ZeRO 1": (stage(1), {}),
    "ZeRO 2": (stage(2), {}),
    "ZeRO 3": (stage(3), {}),
    "ZeRO 2, optimizer on the host": (stage(2, offload_optimizer=CPU), {}),
    "ZeRO 3, all on the host": (stage(3, offload_optimizer=CPU, offload_param=CPU), {}),
    "ZeRO 1, its own optimizer": ({**stage(1), **AUTO_ADAM}, {}),
    "ZeRO 3, accumulation": (stage(3), {"gradient_accumulation_steps": 2}),
    "ZeRO 2, few tokens": (stage(2), {"token_budget": 24}),
    "ZeRO 1, few tokens": (stage(1), {"token_budget": 24}),
}


def with_all(folder: Path, count: int, kind: str, names: list[str]) -> dict[str, Any]:
    return {name: trained(folder, count, FULL[name][0], kind, **FULL[name][1]) for name in names}


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_take_the_steps_of_one(kind: str, tmp_path: Path) -> None:
    names = list(FULL) if kind == "tags" else ["ZeRO 2", "ZeRO 3"]
    alone = trained(tmp_path / "alone", 1, None, kind)
    both = values(in_processes(2, tmp_path, with_all, tmp_path / "together", 2, kind, names))
    for name in names:
        one, other = (found[name] for found in both)
        assert one["engine"] == "DeepSpeedEngine", name
        for number in ("loss", "grad_norm"):
            assert one[number] == pytest.approx(alone[number], rel=2e-5), (name, number)
        assert one["learning_rate"] == alone["learning_rate"], name
        assert one["eval_loss"] == pytest.approx(alone["eval_loss"], rel=2e-5), name
        assert runs.difference(one["weights"], alone["weights"]) < TOLERANCE, name
        assert runs.difference(one["weights"], other["weights"]) == 0.0, name
        assert one["traces"] == [], "the model is a plain one again"
    assert sum(alone["loss"].values()) != alone["loss"][1] * 4, "the rows differ"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_four_processes_take_the_steps_of_one(number: int, tmp_path: Path) -> None:
    """Language models and random masks, one process without a row in the last step, each evaluated row once."""
    models = ["causal lm", "random masks"]
    ways = {"accumulation": grid.WAYS["accumulation"], grid.ADAMW: {**grid.WAYS[grid.ADAMW], "token_budget": 40}}
    alone = grid.cell(tmp_path / "alone", 1, models, grid.WAYS, {})
    ended = in_processes(4, tmp_path, grid.cell, tmp_path / "together", 4, models, ways, grid.zero(number))
    for found in values(ended):
        assert {run["engine"] for run in found.values()} == {"DeepSpeedEngine"}
        assert grid.Differences.of(found, alone).are_rounding()


def in_fp16(folder: Path, count: int) -> list[dict[str, Any]]:
    """With a loss scale that all gradients overflow at, until it is halved often enough."""
    high = {"fp16": {"enabled": "auto", "initial_scale_power": 17, "hysteresis": 1}}
    return [trained(folder, count, {**stage(number), **high}, fp16=True, num_train_epochs=3) for number in (2, 3)]


def test_fp16_leaves_steps_out_until_its_scale_fits(tmp_path: Path) -> None:
    for found in values(in_processes(2, tmp_path, in_fp16, tmp_path, 2))[0]:
        norms = list(found["grad_norm"].values())
        overflown = [norm for norm in norms if norm > 1e30]
        assert norms[0] > 1e30 and 0 < len(overflown) < len(norms)
        assert found["step"] == len(norms) == 12
        assert runs.difference(found["weights"], runs.weights(KINDS["tags"][0]())) > 1e-3


def without_launcher(*given: Any) -> dict[str, Any]:
    for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        del os.environ[name]
    found = trained(*given)
    assert "LOCAL_RANK" not in os.environ
    return found


def test_one_process_with_its_optimizer_on_the_host(tmp_path: Path) -> None:
    """It needs no launcher."""
    alone = trained(tmp_path / "alone", 1, None)
    (found,) = values(in_processes(1, tmp_path, without_launcher, tmp_path / "run", 1, stage(2, offload_optimizer=CPU)))
    assert found["engine"] == "DeepSpeedEngine"
    assert found["loss"] == pytest.approx(alone["loss"], rel=2e-5)
    assert runs.difference(found["weights"], alone["weights"]) < TOLERANCE


def in_bf16(folder: Path, count: int) -> list[dict[str, Any]]:
    return [
        trained(folder / "full", count, stage(2), bf16=True),
        trained(folder / "half", count, stage(3, stage3_gather_16bit_weights_on_model_save=True), bf16=True),
    ]


def test_bf16_keeps_weights_in_full_unless_16_bits_are_asked_for(tmp_path: Path) -> None:
    alone = trained(tmp_path / "alone", 1, None)
    full, half = values(in_processes(2, tmp_path, in_bf16, tmp_path, 2))[0]
    assert full["loss"] == pytest.approx(alone["loss"], rel=2e-2)
    assert {weight.dtype for weight in full["weights"].values()} == {torch.float32}
    assert {weight.dtype for weight in half["weights"].values()} == {torch.bfloat16}
    rounded = max((w - w.bfloat16().float()).abs().max().item() for w in full["weights"].values())
    assert rounded > 0, "these are the weights that were updated, not those that were computed with"
    for name, found in (("full", full), ("half", half)):
        loaded = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / name / "final")
        assert runs.difference(runs.weights(loaded), found["weights"]) == 0.0


def with_its_schedule(folder: Path, count: int) -> dict[str, Any]:
    params = {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}
    scheduler = {"scheduler": {"type": "WarmupDecayLR", "params": {**params, "warmup_type": "linear"}}}
    return trained(folder, count, {**stage(1), **AUTO_ADAM, **scheduler}, warmup_steps=2)


def test_its_own_schedule_sets_the_rate(tmp_path: Path) -> None:
    """DeepSpeed begins one step before the first."""
    found = values(in_processes(2, tmp_path, with_its_schedule, tmp_path, 2))[0]
    assert list(found["learning_rate"].values()) == pytest.approx([0.0, 0.0, 5e-4, 1e-3], abs=1e-9)


def with_adapters(folder: Path, count: int) -> dict[str, Any]:
    import peft

    torch.manual_seed(0)
    model = peft.get_peft_model(KINDS["causal lm"][0](), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    config = stage(3) if count > 1 else None
    return trained(folder, count, config, "causal lm", model=model, learning_rate=1e-2, save_strategy="epoch")


def test_adapters(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    alone = with_adapters(tmp_path / "alone", 1)
    found = values(in_processes(2, tmp_path, with_adapters, tmp_path / "together", 2))[0]
    assert found["loss"] == pytest.approx(alone["loss"], rel=2e-5)
    assert runs.difference(found["weights"], alone["weights"]) < 1e-5
    for place in ("final", "checkpoint-4"):
        assert (tmp_path / "together" / place / "adapter_model.safetensors").is_file()


class Spoils(burnish.TrainerCallback):
    """Makes the loss of the second step infinite."""

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step == 1:
            words = model.get_input_embeddings()
            self.handle = words.register_forward_hook(lambda module, given, output: output * float("inf"))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 2:
            self.handle.remove()


def spoilt(folder: Path, count: int, configs: list[Any]) -> list[dict[str, Any]]:
    return [trained(folder, count, config, callbacks=[Spoils()], nonfinite_policy="skip") for config in configs]


def test_a_step_that_is_not_finite_is_left_out(tmp_path: Path) -> None:
    (alone,) = spoilt(tmp_path / "alone", 1, [None])
    configs = [stage(0), stage(1), stage(2), stage(2, offload_optimizer=CPU), stage(3), stage(3, offload_optimizer=CPU)]
    for found in values(in_processes(2, tmp_path, spoilt, tmp_path / "together", 2, configs))[0]:
        assert found["step"] == 4
        assert runs.difference(found["weights"], alone["weights"]) < TOLERANCE


class OwnStep(burnish.Trainer):
    """Written for transformers, with accelerate's backward pass."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        model.train()
        loss = self.compute_loss(model, self._prepare_inputs(inputs), num_items_in_batch=num_items_in_batch)
        self.accelerator.backward(loss)
        return loss.detach()


class PlainStep(OwnStep):
    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        loss = self.compute_loss(model, self._prepare_inputs(inputs), num_items_in_batch=num_items_in_batch)
        loss.backward()
        return loss.detach()


def test_a_step_of_a_users_own(tmp_path: Path) -> None:
    alone = trained(tmp_path / "alone", 1, None, trainer=OwnStep)
    found = values(in_processes(2, tmp_path, trained, tmp_path / "together", 2, stage(2), trainer=OwnStep))[0]
    assert found["loss"] == pytest.approx(alone["loss"], rel=2e-5)
    assert runs.difference(found["weights"], alone["weights"]) < TOLERANCE


def test_a_backward_pass_behind_its_back_is_refused(tmp_path: Path) -> None:
    ended = in_processes(2, tmp_path, trained, tmp_path / "together", 2, stage(2), trainer=PlainStep)
    assert {one.error for one in ended} == {"UserError"}
    assert "self.accelerator.backward(loss)" in ended[0].words
