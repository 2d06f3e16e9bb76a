"""FSDP2: a model divided among processes takes the steps of one process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from distributed.forked import in_processes, values
from distributed.grid import KINDS, WAYS, told_by, two_passes
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from trainer import runs

import burnish


def whole(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights of a model that may be divided; all processes call it."""
    found = {name: value.detach() for name, value in model.named_parameters()}
    return {name: value.full_tensor() if isinstance(value, DTensor) else value.clone() for name, value in found.items()}


def trained(folder: Path, count: int, kind: str, way: dict[str, Any], model: Any = None) -> dict[str, Any]:
    """What a run of two passes logged, its weights, and how they are divided."""
    run: Any = two_passes(folder, count, kind, way, model)
    parts = list(run.model.parameters())
    divided = all(isinstance(weight, DTensor) for weight in parts)
    return {
        **told_by(run),
        "weights": whole(run.model),
        "ways": (run.objective.counted, run.objective.mean_over, run.tried.padding_free),
        "divided": divided,
        "meshes": {tuple(weight.device_mesh.shape) for weight in parts} if divided else set(),
        "moments": {type(part).__name__ for one in run.optimizer.state.values() for part in one.values()},
    }


def grid(folder: Path, count: int, kind: str, ways: dict[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {name: trained(folder, count, kind, {**way, **more}) for name, way in ways.items()}


def compare(found: dict[str, Any], alone: dict[str, Any], tolerance: float = 2e-6, rel: float = 2e-5) -> None:
    assert found["counts"] == alone["counts"]
    assert found["ways"] == alone["ways"], "what was tried out before the first step"
    for name in ("loss", "grad_norm"):
        assert found[name] == pytest.approx(alone[name], rel=rel), name
    assert runs.difference(found["weights"], alone["weights"]) < tolerance


ON_FOUR = [pytest.param(4, kind, marks=pytest.mark.slow) for kind in ("causal lm", "random masks")]


@pytest.mark.parametrize(("count", "kind"), [*((2, kind) for kind in KINDS), *ON_FOUR])
def test_several_processes_take_the_steps_of_one(count: int, kind: str, tmp_path: Path) -> None:
    """Each weight in as many parts as there are processes; on four of them, one has no row in the last step."""
    alone = grid(tmp_path / "alone", 1, kind, WAYS)
    for found in values(in_processes(count, tmp_path, grid, tmp_path / "together", count, kind, WAYS, fsdp=True)):
        for way, run in found.items():
            assert run["engine"] == "FSDPEngine" and run["divided"], way
            assert run["meshes"] == {(count,)}, way
            compare(run, alone[way])
        assert "DTensor" in found["clipped AdamW"]["moments"]


FORMS: dict[str, dict[str, Any]] = {
    "shard_grad_op": {"fsdp": "shard_grad_op auto_wrap"},
    "offload": {"fsdp": "full_shard auto_wrap offload"},
    "synced": {"fsdp": True, "fsdp_config": {"sync_each_batch": True}},
    "by size": {"fsdp": ["full_shard"], "fsdp_config": {"min_num_params": 2000}},
    "root only": {"fsdp": "full_shard", "fsdp_config": {"auto_wrap_policy": "NO_WRAP"}},
    "recomputed": {"fsdp": True, "fsdp_config": {"version": 2, "activation_checkpointing": True}},
}


def test_forms_of_division(tmp_path: Path) -> None:
    """Two micro-batches a step, AdamW, clipped."""
    way = {**WAYS["clipped AdamW"], "token_budget": 40}
    alone = trained(tmp_path / "alone", 1, "causal lm", way)
    for found in values(in_processes(2, tmp_path, forms, tmp_path / "together", way)):
        for form, run in found.items():
            compare(run, alone)
            assert run["divided"], form


def forms(folder: Path, way: dict[str, Any]) -> dict[str, Any]:
    return {name: trained(folder, 2, "causal lm", {**way, **form}) for name, form in FORMS.items()}


GROUPS: dict[str, dict[str, Any]] = {
    "hybrid_shard": {"fsdp": "hybrid_shard", "fsdp_config": {"dp_shard_size": 2}},
    "hybrid_shard_zero2": {"fsdp": "hybrid_shard_zero2", "fsdp_config": {"dp_shard_size": 2}},
    "for a while": {"fsdp": "full_shard", "fsdp_config": {"reshard_after_forward": 2}},
}


@pytest.mark.parametrize("form", GROUPS)
def test_divided_within_groups(form: str, tmp_path: Path) -> None:
    """Four processes, each two of which hold a whole model, or do between a forward pass and its backward pass."""
    alone = trained(tmp_path / "alone", 1, "causal lm", WAYS["few tokens"])
    way = {**WAYS["few tokens"], **GROUPS[form]}
    for found in values(in_processes(4, tmp_path, trained, tmp_path / "together", 4, "causal lm", way)):
        compare(found, alone)
        assert found["meshes"] == {(2, 2) if form.startswith("hybrid") else (4,)}


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    alone = trained(tmp_path / "alone", 1, "causal lm", WAYS["few tokens"], tiny.llama(tie_word_embeddings=True))
    for found in values(in_processes(2, tmp_path, tied, tmp_path / "together")):
        compare(found, alone)


def tied(folder: Path) -> dict[str, Any]:
    way = {**WAYS["few tokens"], "fsdp": True}
    return trained(folder, 2, "causal lm", way, tiny.llama(tie_word_embeddings=True))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision(precision: str, tmp_path: Path) -> None:
    """As DDP under autocast, but for the rounding of weights that autocast leaves in float32."""
    way = {precision: True, "max_steps": 4, "learning_rate": 0.01}
    ddp = values(in_processes(2, tmp_path, trained, tmp_path / "ddp", 2, "causal lm", way))
    fsdp = values(in_processes(2, tmp_path, trained, tmp_path / "fsdp", 2, "causal lm", {**way, "fsdp": True}))
    for one, other in zip(fsdp, ddp, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=2e-2)
        assert runs.difference(one["weights"], other["weights"]) < 5e-3
        assert all(weight.dtype == torch.float32 for weight in one["weights"].values())
    assert fsdp[0]["loss"] == fsdp[1]["loss"]


class Poisoned(burnish.Trainer):
    """One process alone has a loss that is not finite, in the second step."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **more)
        if self.is_in_train and self.state.global_step == 1 and self.args.process_index == 1:
            loss = loss * float("nan")
        return (loss, outputs) if return_outputs else loss


def with_a_nan(folder: Path, policy: str) -> Any:
    parts = {"train_dataset": tiny.class_rows(12)}
    run = runs.trainer(folder, Poisoned, parts=parts, max_steps=3, nonfinite_policy=policy, fsdp=True)
    run.train()
    return whole(run.model), runs.logged(run, "loss")


def test_a_step_that_is_not_finite_is_so_for_all(tmp_path: Path) -> None:
    ended = in_processes(2, tmp_path, with_a_nan, tmp_path / "stop", "stop")
    assert [one.error for one in ended] == ["NonFiniteError"] * 2
    one, other = values(in_processes(2, tmp_path, with_a_nan, tmp_path / "skip", "skip"))
    assert runs.difference(one[0], other[0]) == 0.0 and one[1] == other[1]
    assert all(bool(weight.isfinite().all()) for weight in one[0].values())


class Branches(torch.nn.Module):
    """Which of two equal layers are used is said by process."""

    def __init__(self, used: str) -> None:
        super().__init__()
        self.a, self.b, self.always = (torch.nn.Linear(2, 1) for _ in range(3))
        self.used = used

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        out = self.always(x) + sum(getattr(self, name)(x) for name in self.used)
        return {"loss": (out.squeeze(-1) - labels).square().mean(), "logits": out}


def branched(folder: Path, used: list[str], older: bool = False, **config: Any) -> Any:
    if older:  # torch before 2.13
        del FSDPModule.set_reduce_scatter_unused_params
    model = tiny.seeded(lambda: Branches(used[int(os.environ["RANK"])]))
    rows = [{"x": [number % 5 / 4, 1.0 - number % 3], "labels": number % 4 / 2} for number in range(12)]
    parts = {"model": model, "train_dataset": rows, "data_collator": None}
    runs.trainer(folder, parts=parts, max_steps=2, fsdp=True, fsdp_config=config).train()


@pytest.mark.parametrize("blocks", ["a", "ab"])
def test_processes_that_use_other_blocks_end(blocks: str, tmp_path: Path) -> None:
    """torch alone would gather and sum the two layers as if they were one."""
    used = ["a", "b"] if blocks == "a" else ["ab", "ba"]
    for one in in_processes(2, tmp_path, branched, tmp_path / "out", used, min_num_params=1):
        assert one.error == "SettingError" and "the step was not applied" in one.words, one
        assert ("a, b on one of them alone" if blocks == "a" else "in another order") in one.words


def test_a_weight_that_one_process_alone_uses(tmp_path: Path) -> None:
    """Of weights that are gathered together: zeros are summed where torch can, and the run ends where it cannot."""
    whole_model = {"auto_wrap_policy": "NO_WRAP"}
    if hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
        values(in_processes(2, tmp_path, branched, tmp_path / "zeros", ["a", "b"], **whole_model))
    older = hasattr(FSDPModule, "set_reduce_scatter_unused_params")
    for one in in_processes(2, tmp_path, branched, tmp_path / "out", ["a", "b"], older=older, **whole_model):
        assert one.error == "SettingError" and "a.weight" in one.words and "b.bias" in one.words, one
