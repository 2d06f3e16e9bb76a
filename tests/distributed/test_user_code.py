"""Methods and callbacks of a user's own on several processes: the same steps, and the same decisions on all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from distributed.forked import in_processes, values
from distributed.test_training import Stream, assert_same, outcome, settings
from trainer import runs

import burnish


class OwnLoss(burnish.Trainer):
    """Calls the model twice in one loss."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
        outputs = model(**inputs)
        loss = outputs.loss + 0.1 * model(**inputs).logits.square().mean()
        return (loss, outputs) if return_outputs else loss


class OwnStep(burnish.Trainer):
    """Written for transformers: a mean, divided and taken backward by accelerate."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        model.train()
        inputs = self._prepare_inputs(inputs)
        assert self.accelerator.unwrap_model(model) is self.model
        assert model.module.config is self.model.config if self.args.world_size > 1 else model is self.model
        loss = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
        self.accelerator.backward(loss)
        return loss.detach()


class AroundStep(burnish.Trainer):
    def training_step(self, *given: Any, **named: Any) -> Any:
        return super().training_step(*given, **named)


def with_methods(folder: Path, count: int, cls: Any) -> dict[str, Any]:
    return outcome(runs.trainer(folder, cls, **settings(count)))


@pytest.mark.parametrize("cls", [OwnLoss, OwnStep, AroundStep])
def test_methods_of_a_users_own(cls: Any, tmp_path: Path) -> None:
    alone = with_methods(tmp_path / "alone", 1, cls)
    assert_same(alone, values(in_processes(2, tmp_path, with_methods, tmp_path / "together", 2, cls)))


class Gathers(burnish.Trainer):
    """Its loss, and what it says of a batch, are asked of all processes."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
        outputs = model(**inputs)
        of_all = self.accelerator.gather_for_metrics(outputs.loss.detach().reshape(1))
        assert len(of_all) == self.args.world_size
        return (outputs.loss, outputs) if return_outputs else outputs.loss


class GathersInStep(Gathers):
    """Divides by a number of its own."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        model.train()
        loss = self.compute_loss(model, self._prepare_inputs(inputs))
        loss = loss / max(1.0, self.current_gradient_accumulation_steps)
        loss.backward()
        return loss.detach()


class GathersInEvaluation(burnish.Trainer):
    def prediction_step(self, *given: Any, **named: Any) -> Any:
        loss, *others = super().prediction_step(*given, **named)
        assert loss is not None
        assert len(self.accelerator.gather_for_metrics(loss.reshape(1))) == self.args.world_size
        return loss, *others


def gathering(folder: Path, count: int, cls: Any, stream: bool) -> dict[str, Any]:
    """17 rows, 8 in a step and 2 in a batch: the last step and the last batch are of one process alone."""
    data: Any = Stream(17) if stream else tiny.class_rows(17)
    own = settings(count, max_steps=3, eval_strategy="steps", eval_steps=3, per_device_eval_batch_size=2)
    own |= {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4 // count}
    run = runs.trainer(folder, cls, {"train_dataset": data, "eval_dataset": data}, **own)
    return {**outcome(run), "eval": runs.logged(run, "eval_loss")}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("cls", [Gathers, GathersInStep, GathersInEvaluation])
def test_methods_that_gather(cls: Any, stream: bool, tmp_path: Path) -> None:
    alone = gathering(tmp_path / "alone", 1, cls, stream)
    found = values(in_processes(2, tmp_path, gathering, tmp_path / "together", 2, cls, stream))
    assert_same(alone, found)
    assert [one["eval"] for one in found] == [pytest.approx(alone["eval"], rel=1e-5)] * 2


def not_finite(folder: Path) -> None:
    rows = tiny.class_rows(11)
    rows[6]["input_ids"][0] = 77
    run = runs.trainer(folder, Gathers, {"train_dataset": rows}, **settings(2, per_device_train_batch_size=6))

    def spoil(module: Any, given: Any, embedded: torch.Tensor) -> torch.Tensor:
        return embedded.masked_fill((given[0] == 77).any(-1)[:, None, None], float("nan"))

    run.model.get_input_embeddings().register_forward_hook(spoil)
    run.train()


def test_the_row_is_named_where_a_loss_gathers(tmp_path: Path) -> None:
    """11 rows: one process has a row less."""
    ended = in_processes(2, tmp_path, not_finite, tmp_path / "out")
    assert [one.error for one in ended] == ["NonFiniteError"] * 2
    assert all("it is NaN or infinite for row 6" in one.words for one in ended)


class StopsOnOne(burnish.TrainerCallback):
    """Asks for an end on the last process alone."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.process_index == args.world_size - 1 and state.global_step == 2:
            control.should_training_stop = control.should_save = True


def stopped_by_one(folder: Path, everywhere: bool) -> Any:
    callbacks = [StopsOnOne()] if everywhere or os.environ["RANK"] == "1" else []
    run = runs.trainer(folder, parts={"callbacks": callbacks}, **settings(2, num_train_epochs=3))
    run.train()
    return run.state.global_step, sorted(path.name for path in folder.glob("checkpoint-*"))


@pytest.mark.parametrize("everywhere", [True, False])
def test_what_one_process_asks_for_all_do(everywhere: bool, tmp_path: Path) -> None:
    found = values(in_processes(2, tmp_path, stopped_by_one, tmp_path / "out", everywhere))
    assert found == [(2, ["checkpoint-2"])] * 2


class AsksInBetween(burnish.TrainerCallback):
    """Asks for what comes after, on the last process alone, when it hears of something at step 2."""

    def __init__(self, event: str, flag: str) -> None:
        setattr(self, event, self.ask)
        self.flag = flag

    def ask(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.process_index == args.world_size - 1 and state.global_step == 2:
            setattr(control, self.flag, True)


def asked_in_between(folder: Path, event: str, flag: str) -> Any:
    data = {"train_dataset": tiny.class_rows(24), "eval_dataset": tiny.class_rows(6)}
    own = settings(2, eval_strategy="steps", eval_steps=2 if event == "on_evaluate" else 3)
    run = runs.trainer(folder, parts={**data, "callbacks": [AsksInBetween(event, flag)]}, **own)
    run.train()
    evaluated = [entry["step"] for entry in run.state.log_history if "eval_loss" in entry]
    return run.state.global_step, evaluated, sorted(path.name for path in folder.glob("checkpoint-*"))


@pytest.mark.parametrize(
    ("event", "flag", "outcome"),
    [
        ("on_log", "should_evaluate", (3, [2, 3], [])),
        ("on_log", "should_save", (3, [3], ["checkpoint-2"])),
        ("on_log", "should_training_stop", (2, [], [])),
        ("on_evaluate", "should_save", (3, [2, 3], ["checkpoint-2"])),
    ],
)
def test_what_is_asked_for_on_hearing_of_something(event: str, flag: str, outcome: Any, tmp_path: Path) -> None:
    found = values(in_processes(2, tmp_path, asked_in_between, tmp_path / "out", event, flag))
    assert found == [outcome] * 2
