"""The update within the backward pass: the same run in less memory, and what it cannot do is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from trainer import runs
from trainer.test_resume import STEPS, STOP, Stop, assert_same

import burnish
from burnish.core.errors import NonFiniteError, OutOfMemoryError, SettingError
from burnish.core.processes import Alone
from burnish.engines.choice import engine_for

WAYS: dict[str, dict[str, Any]] = {
    "plain": {"weight_decay": 0.1},
    "plain_adamw": {"optim": "adamw_torch"},
    "sgd_with_momentum": {"optim": "sgd", "optim_args": "momentum=0.9", "lr_scheduler_type": "cosine"},
    "adafactor": {"optim": "adafactor"},
    "accumulation": {"gradient_accumulation_steps": 2, "token_budget": 40},
    "checkpointing": {"gradient_checkpointing": True},
    "bf16": {"bf16": True},
}


def run(folder: Path, in_backward: bool = True, parts: dict[str, Any] | None = None, **settings: Any) -> Any:
    """Tied embeddings, and rows of unequal length."""
    usual = {"max_steps": STEPS, "max_grad_norm": 0.0, "optim_in_backward": in_backward}
    made = {"model": tiny.llama(tie_word_embeddings=True), "train_dataset": tiny.language_rows(18)}
    made |= {"data_collator": None, **(parts or {})}
    return runs.trainer(folder, parts=made, **{**usual, **settings})


@pytest.mark.parametrize("name", WAYS)
def test_the_same_run(name: str, tmp_path: Path) -> None:
    ordinary = run(tmp_path / "ordinary", in_backward=False, **WAYS[name])
    ordinary.train()
    early = run(tmp_path / "early", **WAYS[name])
    early.train()
    assert_same(ordinary, early)  # weights, losses, norms and rates
    assert not any(weight._post_accumulate_grad_hooks for weight in early.model.parameters())


def test_a_run_goes_on_in_either_way(tmp_path: Path) -> None:
    straight = run(tmp_path / "straight", in_backward=False)
    straight.train()
    saving = {"save_strategy": "steps", "save_steps": STOP}
    run(tmp_path / "broken", parts={"callbacks": [Stop(STOP)]}, **saving).train()
    for early in (False, True):
        resumed = run(tmp_path / "broken", in_backward=early)
        resumed.train(resume_from_checkpoint=str(tmp_path / "broken" / f"checkpoint-{STOP}"))
        assert_same(straight, resumed)


@pytest.mark.parametrize(("budget", "most"), [(10_000, 1), (30, 20)])
def test_gradients_are_freed_one_by_one(budget: int, most: int, tmp_path: Path) -> None:
    """With one micro-batch there is one gradient at a time; with more, those of the earlier ones stay."""
    alive: list[int] = []
    trainer = run(tmp_path, max_steps=1, token_budget=budget)
    weights = list(trainer.model.parameters())

    def count(optimizer: Any, args: Any, kwargs: Any) -> None:
        alive.append(sum(weight.grad is not None for weight in weights))

    class Watch(burnish.TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **details: Any) -> None:
            details["optimizer"].register_step_pre_hook(count)

    trainer.add_callback(Watch())
    trainer.train()
    assert len(alive) == len(weights)
    assert max(alive) == most


@pytest.mark.parametrize(
    ("settings", "to_set"),
    [
        ({"max_grad_norm": 1.0}, "max_grad_norm=0"),
        ({"max_grad_norm": 0, "fp16": True}, "bf16=True"),
        ({"max_grad_norm": 0, "nonfinite_policy": "skip"}, "'stop' or 'ignore'"),
        (
            {"max_grad_norm": 0, "gradient_checkpointing": True,
             "gradient_checkpointing_kwargs": {"use_reentrant": True}},
            "use_reentrant",
        ),
    ],
)  # fmt: skip
def test_what_needs_all_gradients_first_is_refused(settings: dict[str, Any], to_set: str) -> None:
    with pytest.raises(SettingError, match=to_set):
        burnish.TrainingArguments("out", optim_in_backward=True, **settings)


def test_an_optimizer_of_unknown_kind_is_refused(tmp_path: Path) -> None:
    class Own(torch.optim.SGD):
        pass

    model = tiny.llama()
    trainer = run(tmp_path, parts={"model": model, "optimizers": (Own(model.parameters(), lr=0.1), None)})
    with pytest.raises(SettingError, match="Own"):
        trainer.train()


def test_a_training_step_of_the_users_own_is_refused(tmp_path: Path) -> None:
    class Own(burnish.Trainer):
        def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            return super().training_step(*args, **kwargs)

    args = burnish.TrainingArguments(
        str(tmp_path), max_grad_norm=0, optim_in_backward=True, report_to="none", use_cpu=True
    )
    trainer = Own(tiny.llama(), args, train_dataset=tiny.language_rows(4))
    with pytest.raises(SettingError, match="training_step"):
        trainer.train()


class Spoilt(torch.autograd.Function):
    """Its output is fine, its gradient infinite."""

    @staticmethod
    def forward(context: Any, hidden: torch.Tensor) -> torch.Tensor:
        return hidden.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * float("inf")


def _spoil(model: Any, when: Any) -> None:
    layer = model.model.layers[1]
    layer.register_forward_hook(lambda part, args, out: Spoilt.apply(out) if when() else out)


def test_a_gradient_that_is_not_finite_stops_the_run_and_says_what_was_done(tmp_path: Path) -> None:
    trainer = run(tmp_path, save_strategy="no")
    _spoil(trainer.model, lambda: trainer.is_in_train)
    before = {name: weight.clone() for name, weight in trainer.model.named_parameters()}
    with pytest.raises(NonFiniteError, match=r"weight by weight.*last checkpoint"):
        trainer.train()
    changed = {name for name, weight in trainer.model.named_parameters() if not torch.equal(weight, before[name])}
    assert changed == {"model.norm.weight"}  # the tied embeddings have another part of their gradient below
    assert all(torch.isfinite(weight).all() for weight in trainer.model.parameters())


def test_a_loss_that_is_not_finite_changes_nothing(tmp_path: Path) -> None:
    trainer = run(tmp_path)
    trainer.model.model.layers[1].register_forward_hook(
        lambda part, args, out: out * float("nan") if trainer.is_in_train else out
    )
    before = runs.weights(trainer.model)
    with pytest.raises(NonFiniteError, match="was not applied"):
        trainer.train()
    assert runs.difference(trainer.model, before) == 0.0


def test_memory_that_runs_out_after_the_first_update_ends_the_run(tmp_path: Path) -> None:
    trainer = run(tmp_path)

    def fail(gradient: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    def hook(part: Any, args: Any, out: Any) -> None:
        if trainer.is_in_train and out.requires_grad:
            out.register_hook(fail)

    trainer.model.model.layers[0].register_forward_hook(hook)
    with pytest.raises(OutOfMemoryError, match="weights had been updated"):
        trainer.train()


def test_several_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Two(Alone):
        count = 2

    monkeypatch.setattr("burnish.engines.choice.processes_for", lambda args: Two())
    with pytest.raises(SettingError, match="2 processes"):
        engine_for(runs.arguments(tmp_path, optim_in_backward=True, max_grad_norm=0))
